"""What several families say of a draft, in all spellings: its heads, its anchor, its taps."""

from __future__ import annotations

from dspark_convert.reference.config import Config
from dspark_convert.reference.gemma4_facts import GEMMA4
from dspark_convert.reference.weights import Shape, columns

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

    The flag, at the top or in dflash_config; else its opposite, ``dspark_bonus_anchor``; else what the
    class and the heads imply: DSpark reads from the anchor, and so does every draft of DeepSpec's class;
    plain DFlash reads from the first mask.
    """
    flag = config.flag("sample_from_anchor", "dflash_config.sample_from_anchor")
    if flag is not None:
        return flag
    bonus = config.flag("dspark_bonus_anchor", "dflash_config.dspark_bonus_anchor")
    if bonus is not None:
        return not bonus
    return rank > 0 or config.architecture() in ("Qwen3DSparkModel", GEMMA4)


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
