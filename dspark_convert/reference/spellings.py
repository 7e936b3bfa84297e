"""What several families say of a draft, in all spellings: its heads, its anchor, its taps."""

from __future__ import annotations

from dspark_convert.reference.config import LAYERS, Config
from dspark_convert.reference.weights import D2T, SINKS, Shape, columns

MARKOV_W1 = "markov_head.markov_w1.weight"
CONFIDENCE = "confidence_head.proj.weight"


def refuse_other_heads(config: Config, shapes: dict[str, Shape]) -> None:
    kind = config.get("markov_head_type", "dflash_config.markov_head_type")
    if kind not in (None, "vanilla"):
        raise ValueError(f"{config.path}: the reference computes the vanilla Markov head only, not {kind!r}.")
    for part in ("gate_proj", "joint_proj"):
        if f"markov_head.{part}.weight" in shapes:
            raise ValueError(f"{config.path.parent}: the reference computes the vanilla Markov head only, not {part}.")


def markov_rank(config: Config, shapes: dict[str, Shape]) -> int:
    """The config's, else that of the tensors; 0 without a Markov head."""
    stored = columns(shapes, MARKOV_W1)
    rank = config.integer("markov_rank", "dflash_config.markov_rank", minimum=0, default=stored)
    if rank and not stored:
        raise ValueError(f"{config.path.parent} lacks tensor {MARKOV_W1}, but markov_rank is {rank}.")
    if rank != stored:
        raise ValueError(f"{config.path}: markov_rank is {rank}, but {MARKOV_W1} has {stored} columns.")
    return rank


def confidence_columns(config: Config, shapes: dict[str, Shape]) -> int:
    """How many numbers the confidence head looks at; 0 without one."""
    stored = columns(shapes, CONFIDENCE)
    declared = config.flag("enable_confidence_head", "dflash_config.enable_confidence_head")
    if declared and not stored:
        raise ValueError(f"{config.path.parent} lacks tensor {CONFIDENCE}, but enable_confidence_head is true.")
    if declared is False and stored:
        raise ValueError(f"{config.path}: enable_confidence_head is false, but there is a tensor {CONFIDENCE}.")
    return stored


def sample_from_anchor(config: Config, rank: int) -> bool:
    """Whether the anchor's own slot proposes the token behind it.

    The flag, at the top or in dflash_config; else its opposite, ``dspark_bonus_anchor``; else, for DSpark drafts of
    speculators, whether as many tokens are proposed as a block has; else what the class and the heads imply:
    DSpark reads from the anchor, plain DFlash from the first mask. speculators' DFlash drafts declare as many
    tokens as a block has, and propose one fewer.
    """
    flag = config.flag("sample_from_anchor", "dflash_config.sample_from_anchor")
    if flag is not None:
        return flag
    bonus = config.flag("dspark_bonus_anchor", "dflash_config.dspark_bonus_anchor")
    if bonus is not None:
        return not bonus
    algorithm = config.get("speculators_config.algorithm", "speculators_model_type")
    if algorithm == "dspark" and is_speculators(config):
        missing = config.integer("block_size") - speculative_tokens(config)
        if missing in (0, 1):
            return missing == 0
    return rank > 0 or "DSpark" in config.architecture()


def speculative_tokens(config: Config) -> int:
    """How many tokens the first proposal method takes; the block's number where none says so."""
    methods = config.get("speculators_config.proposal_methods")
    first = methods[0] if isinstance(methods, list) and methods else None
    tokens = first.get("speculative_tokens") if isinstance(first, dict) else None
    return tokens if type(tokens) is int else config.integer("block_size")


def is_speculators(config: Config) -> bool:
    return config.get(LAYERS, "aux_hidden_state_layer_ids") is not None


def draft_vocab_size(config: Config, shapes: dict[str, Shape]) -> int | None:
    """How many of the target's tokens the draft knows; None for all, in their order.

    Where the config does not say so, as many as ``d2t`` has.
    """
    rows = shapes.get(D2T)
    declared = config.integer("draft_vocab_size", default=rows[0] if rows else config.integer("vocab_size"))
    if rows is None and declared != config.integer("vocab_size"):
        raise ValueError(f"{config.path.parent} lacks tensor {D2T}, but draft_vocab_size is {declared}.")
    if rows is not None and rows != (declared,):
        raise ValueError(f"{config.path}: draft_vocab_size is {declared}, but {D2T} is {list(rows)}.")
    return None if rows is None else declared


def has_sinks(config: Config, shapes: dict[str, Shape]) -> bool:
    """Whether every head has a number that takes its share of the attention."""
    stored = f"layers.0.{SINKS}" in shapes
    declared = config.flag("attention_sink_bias", "dflash_config.attention_sink_bias")
    if declared and not stored:
        raise ValueError(f"{config.path.parent} lacks tensor layers.0.{SINKS}, but attention_sink_bias is true.")
    if declared is False and stored:
        raise ValueError(f"{config.path}: attention_sink_bias is false, but there is a tensor layers.0.{SINKS}.")
    return stored


def taps(config: Config) -> tuple[int, ...]:
    """The target's layer inputs that are features, in their order.

    ``target_layer_ids`` counts layers whose *output* is meant, from 0, -1 being the embeddings; the output
    of layer i enters layer i + 1. The eagle and speculators spellings count inputs already.
    """
    spelled = {}
    for key, offset in {
        "target_layer_ids": 1,
        "dflash_config.target_layer_ids": 1,
        "eagle_aux_hidden_state_layer_ids": 0,
        "aux_hidden_state_layer_ids": 0,
    }.items():
        ids = config.integers(key)
        if ids is not None:
            spelled[key] = tuple(i + offset for i in ids)
    if not spelled:
        raise config.wrong("target_layer_ids", "a list of whole numbers", None)
    (key, first), *others = spelled.items()
    for other, ids in others:
        if ids != first:
            raise ValueError(f"{config.path}: {key} means the layer inputs {list(first)}, {other} {list(ids)}.")
    return first


def num_target_layers(config: Config) -> int | None:
    """None where the config does not say, or says 0."""
    return config.integer("num_target_layers", "dflash_config.num_target_layers", minimum=0, default=0) or None


def positive_or_none(config: Config, *keys: str) -> float | None:
    return None if config.get(*keys) is None else config.positive(*keys)
