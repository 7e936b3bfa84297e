"""What a draft checkpoint says of itself: sizes, and how its blocks are to be read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dspark_convert.reference.config import Config, require_silu
from dspark_convert.reference.deepseek4_facts import DEEPSEEK4, StageFacts, count_stages, read_stages
from dspark_convert.reference.deepseek4_weights import read_stage_shapes
from dspark_convert.reference.dflash2_facts import DFLASH2, SCALES, DFlash2Facts, read_dflash2
from dspark_convert.reference.gemma4_facts import GEMMA4, Gemma4Facts, read_gemma4
from dspark_convert.reference.qwen3 import has_biases, head_dim
from dspark_convert.reference.rotation import Rotation, read_rotation
from dspark_convert.reference.spellings import (
    CONFIDENCE,
    MARKOV_W1,
    confidence_columns,
    draft_vocab_size,
    has_sinks,
    is_speculators,
    markov_rank,
    num_target_layers,
    positive_or_none,
    refuse_other_heads,
    sample_from_anchor,
    taps,
)
from dspark_convert.reference.views import MUSE, View, read_views
from dspark_convert.reference.weights import SINKS, Shape, columns, read_shapes

DFLASH = "DFlashDraftModel"

#: drafts built of Qwen3 layers; DeepSpec's own class comes first
CLASSES = (
    "Qwen3DSparkModel",
    "DSparkDraftModel",
    DFLASH,
    DFLASH2,
    "DSparkSpeculator",
    "DFlashSpeculator",
    "Lfm2DSparkDraftModel",
    "LingDSparkModel",
    MUSE,
)

MIMO_KEYS = ("dflash_config.attention_value_scale", "dflash_config.backbone_rotary_base")
VALUE_SCALE = ("dflash_config.attention_value_scale", "attention_value_scale")


@dataclass(frozen=True)
class Facts:
    """``taps`` are layer inputs of the target: L is the residual stream that enters layer L.

    ``block_size`` counts the tokens of a block as it is fed: the anchor and block_size - 1 masks.
    ``intermediate_size`` is an expert's where there are experts; ``stages`` is there for DeepSeek-V4, ``gemma4``
    for Gemma4, ``dflash2`` for DFlash2. ``embedding_scale`` multiplies the block's embeddings; the head's output is
    multiplied by ``logit_scale`` and then held within ``logit_cap`` by cap · tanh(logit / cap).

    ``views`` [layers] and ``rotation`` are there for Qwen3's layers, ``causal`` if all of them are;
    ``window_from_block``: see ``views.visible``. Attention's values are multiplied by ``value_scale``.
    ``draft_vocab_size``: how many of the target's tokens have logits; None for all.
    """

    block_size: int
    sample_from_anchor: bool
    taps: tuple[int, ...]
    mask_token_id: int
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    n_layer: int
    n_head: int
    n_head_kv: int
    head_dim: int
    attention_bias: bool
    rms_norm_eps: float
    rope_theta: float
    context_length: int
    markov_rank: int
    has_confidence_head: bool
    confidence_with_markov: bool
    num_target_layers: int | None
    causal: bool = False
    views: tuple[View, ...] = ()
    window_from_block: bool = False
    rotation: Rotation | None = None
    has_sinks: bool = False
    value_scale: float = 1.0
    draft_vocab_size: int | None = None
    stages: StageFacts | None = None
    gemma4: Gemma4Facts | None = None
    dflash2: DFlash2Facts | None = None
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None

    @property
    def slots(self) -> int:
        """Tokens in the batch of one block."""
        return self.block_size

    @property
    def first_slot(self) -> int:
        """The first slot that proposes a token: the anchor's own, or the first mask's."""
        return 0 if self.sample_from_anchor else 1

    def block_ids(self, anchor: int) -> torch.Tensor:
        """The tokens of a block, [slots]."""
        return torch.tensor([anchor] + [self.mask_token_id] * (self.slots - 1))


def read_facts(directory: Path) -> Facts:
    """The facts of the draft checkpoint in ``directory``.

    Raises ValueError, in one sentence, for a draft that the reference cannot compute and for a config
    that contradicts itself or the tensors.
    """
    config = Config(directory).flattened()
    if config.architecture() == DEEPSEEK4:
        return read_deepseek4_facts(config)
    if config.architecture() == GEMMA4:
        return read_gemma4_facts(config)
    shapes = read_shapes(directory)
    refuse_other_families(config, shapes)
    dflash2 = read_dflash2(config, shapes)
    head = head_dim(config, shapes)
    views = read_views(config, config.integer("num_hidden_layers"))
    rotation = read_rotation(config, head, in_part=turns_in_part(config, shapes))
    facts = Facts(
        **shared_facts(config, shapes),
        block_size=config.integer("block_size", "dflash_config.block_size"),
        n_head_kv=config.integer("num_key_value_heads", default=config.integer("num_attention_heads")),
        head_dim=head,
        attention_bias=has_biases(config, shapes),
        rope_theta=rotation.theta,
        causal=all(view.causal for view in views),
        views=views,
        window_from_block=is_speculators(config),
        rotation=rotation,
        has_sinks=has_sinks(config, shapes),
        value_scale=positive_or_none(config, *VALUE_SCALE) or 1.0,
    )
    scale, multiplier, cap = (read_scale(config, key) for key in SCALES)
    facts = replace(facts, dflash2=dflash2, embedding_scale=scale or 1.0, logit_scale=multiplier or 1.0, logit_cap=cap)
    check(config, facts, confidence_columns(config, shapes))
    return facts


def shared_facts(config: Config, shapes: dict[str, Shape]) -> dict[str, Any]:
    """What all drafts but DeepSeek-V4's say in the same words, as arguments of ``Facts``."""
    rank, confidence = markov_rank(config, shapes), confidence_columns(config, shapes)
    return {
        "sample_from_anchor": sample_from_anchor(config, rank),
        "taps": taps(config),
        "mask_token_id": config.integer("mask_token_id", "dflash_config.mask_token_id", minimum=0),
        "vocab_size": config.integer("vocab_size"),
        "hidden_size": config.integer("hidden_size"),
        "intermediate_size": config.integer("intermediate_size"),
        "n_layer": config.integer("num_hidden_layers"),
        "n_head": config.integer("num_attention_heads"),
        "rms_norm_eps": config.positive("rms_norm_eps"),
        "context_length": config.integer("max_position_embeddings"),
        "markov_rank": rank,
        "has_confidence_head": confidence > 0,
        "confidence_with_markov": confidence > config.integer("hidden_size"),
        "num_target_layers": num_target_layers(config),
        "draft_vocab_size": draft_vocab_size(config, shapes),
    }


def turns_in_part(config: Config, shapes: dict[str, Shape]) -> bool:
    """Whether ``partial_rotary_factor`` speaks of the draft's own layers, as in MiMo's, which are told by their sinks
    or by keys that no other draft has. All others inherit it with their target's config.
    """
    if config.architecture() != DFLASH or is_speculators(config) or MARKOV_W1 in shapes:
        return False
    return config.get(*MIMO_KEYS) is not None or any(name.endswith(f".{SINKS}") for name in shapes)


def read_scale(config: Config, key: str) -> float | None:
    """The draft's own. What stands at the top z-lab's class obeys; other configs inherit it from their target's."""
    obeyed = config.architecture() in (DFLASH, DFLASH2) and not is_speculators(config)
    return positive_or_none(config, f"dflash_config.{key}", *([key] if obeyed else []))


def read_deepseek4_facts(config: Config) -> Facts:
    """Of the draft that a DeepSeek-V4 checkpoint holds. Its stages rotate without the target's YaRN."""
    shapes = read_stage_shapes(config.path.parent)
    rank = columns(shapes, MARKOV_W1)
    declared = config.integer("dspark_markov_rank")
    if declared != rank:
        raise ValueError(f"{config.path}: dspark_markov_rank is {declared}, but {MARKOV_W1} has {rank} columns.")
    confidence = columns(shapes, CONFIDENCE)
    facts = Facts(
        block_size=config.integer("dspark_block_size"),
        sample_from_anchor=True,
        taps=tuple(layer + 1 for layer in config.integers("dspark_target_layer_ids") or ()),
        mask_token_id=config.integer("dspark_noise_token_id", minimum=0),
        vocab_size=config.integer("vocab_size"),
        hidden_size=config.integer("hidden_size"),
        intermediate_size=config.integer("moe_intermediate_size"),
        n_layer=count_stages(config, shapes),
        n_head=config.integer("num_attention_heads"),
        n_head_kv=1,
        head_dim=config.integer("head_dim"),
        attention_bias=False,
        rms_norm_eps=config.positive("rms_norm_eps"),
        rope_theta=config.positive("rope_theta"),
        context_length=config.integer("max_position_embeddings"),
        markov_rank=rank,
        has_confidence_head=confidence > 0,
        confidence_with_markov=confidence > config.integer("hidden_size"),
        num_target_layers=config.integer("num_hidden_layers"),
        stages=read_stages(config),
    )
    check(config, facts, confidence)
    return facts


def read_gemma4_facts(config: Config) -> Facts:
    """Of DeepSpec's draft for Gemma 4: all its layers have the sizes of the target's global ones."""
    shapes, own = read_shapes(config.path.parent), read_gemma4(config)
    refuse_other_heads(config, shapes)
    facts = Facts(
        **shared_facts(config, shapes),
        block_size=config.integer("block_size"),
        n_head_kv=config.integer("num_global_key_value_heads" if own.key_is_value else "num_key_value_heads"),
        head_dim=config.integer("global_head_dim"),
        attention_bias=False,
        rope_theta=own.rope_theta,
        gemma4=own,
        embedding_scale=config.integer("hidden_size") ** 0.5,
        logit_cap=positive_or_none(config, "final_logit_softcapping"),
    )
    check(config, facts, confidence_columns(config, shapes))
    return facts


def refuse_other_families(config: Config, shapes: dict[str, Shape]) -> None:
    name = config.architecture()
    if name not in CLASSES:
        raise ValueError(f"{config.path}: the reference knows {', '.join(CLASSES)}, not the draft class {name}.")
    if config.flag("log_snr_conditioning") or any(name.startswith("log_snr_embed.") for name in shapes):
        raise ValueError(f"{config.path}: the reference cannot compute log-SNR conditioning.")
    for key, expected in (("v_head_dim", "head_dim"), ("target_hidden_size", "hidden_size")):
        if config.get(key) not in (None, config.get(expected)):
            raise config.wrong(key, f"the {expected}, {config.get(expected)}", config.get(key))
    require_silu(config)
    refuse_other_heads(config, shapes)


def check(config: Config, facts: Facts, confidence: int) -> None:
    """Raises ValueError where facts contradict each other."""
    bad = [tap for tap in facts.taps if tap < 0 or tap > (facts.num_target_layers or tap)]
    if bad:
        raise ValueError(
            f"{config.path}: the features are inputs of layers {list(facts.taps)}, but the target has no {bad[0]}."
        )
    if facts.first_slot >= facts.slots:
        raise ValueError(f"{config.path}: a block of the anchor alone (block_size 1, bonus anchor) drafts nothing.")
    if facts.mask_token_id >= facts.vocab_size:
        key = "dspark_noise_token_id" if facts.stages else "mask_token_id"
        raise config.wrong(key, f"below the vocab_size {facts.vocab_size}", facts.mask_token_id)
    turning = facts.head_dim if facts.rotation is None else facts.rotation.dims
    if facts.n_head % facts.n_head_kv or turning % 2:
        raise ValueError(
            f"{config.path}: {facts.n_head} query heads over {facts.n_head_kv} key heads of {facts.head_dim} numbers,"
            f" of which {turning} turn, do not fit together."
        )
    declared = config.flag("confidence_head_with_markov", "dflash_config.confidence_head_with_markov")
    if facts.has_confidence_head and declared not in (None, facts.confidence_with_markov):
        raise ValueError(
            f"{config.path}: confidence_head_with_markov is {str(declared).lower()}, but {CONFIDENCE} looks at "
            f"{confidence} numbers and hidden_size is {facts.hidden_size}."
        )
