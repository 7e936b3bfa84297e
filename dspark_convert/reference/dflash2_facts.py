"""What a DFlash2 draft (z-lab, incoai) says of its convolutions and its selector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dspark_convert.reference.config import Config
from dspark_convert.reference.weights import Shape, columns

DFLASH2 = "DFlash2DraftModel"

PREDECESSORS = "candidate_selector.predecessor_codebook"
SUCCESSORS = "candidate_selector.successor_codebook"
PROJECTION = "candidate_selector.hidden_projection.weight"

#: what multiplies embeddings and logits, and what holds the logits in
SCALES = ("input_embedding_scale", "output_multiplier", "final_logit_softcapping")

#: the two convolutions of a layer
ATTENTION_CONV, MLP_CONV = "attention_conv", "mlp_conv"


@dataclass(frozen=True)
class DFlash2Facts:
    """``kernel`` taps; ``group`` channels share what the projection adds to them. ``top_k`` tokens a slot compete.

    ``windows`` [layers]: a slot looks at what is less than so many positions before it; None: at everything.
    """

    kernel: int
    group: int
    rank: int
    top_k: int
    windows: tuple[int | None, ...]


def read_dflash2(config: Config, shapes: Mapping[str, Shape]) -> DFlash2Facts | None:
    """None for another draft. Raises ValueError where config and tensors contradict each other."""
    if PREDECESSORS not in shapes and config.architecture() != DFLASH2:
        return None
    facts = DFlash2Facts(
        kernel=config.integer("dflash_config.conv_kernel_size", "conv_kernel_size"),
        group=config.integer("dflash_config.conv_group_size", "conv_group_size"),
        rank=config.integer("dflash_config.selector_rank", "selector_rank"),
        top_k=config.integer("dflash_config.selector_top_k", "selector_top_k"),
        windows=windows(config),
    )
    stored, hidden, vocab = columns(shapes, PREDECESSORS), config.integer("hidden_size"), config.integer("vocab_size")
    if config.get("hidden_act") not in (None, "silu"):
        raise config.wrong("hidden_act", "silu", config.get("hidden_act"))
    if facts.rank != stored:
        raise ValueError(f"{config.path}: selector_rank is {facts.rank}, but {PREDECESSORS} has {stored} columns.")
    if hidden % facts.group:
        raise ValueError(f"{config.path}: hidden_size {hidden} is no multiple of conv_group_size {facts.group}.")
    if facts.top_k > vocab:
        raise config.wrong("dflash_config.selector_top_k", f"at most the vocab_size {vocab}", facts.top_k)
    return facts


def windows(config: Config) -> tuple[int | None, ...]:
    """One for each layer; z-lab's count the slot itself, as llama.cpp's do."""
    n_layer = config.integer("num_hidden_layers")
    kinds = config.get("layer_types") or ["full_attention"] * n_layer
    if not isinstance(kinds, list) or len(kinds) != n_layer or not {*kinds} <= {"full_attention", "sliding_attention"}:
        raise config.wrong("layer_types", f"{n_layer} of full_attention and sliding_attention", kinds)
    size = config.integer("sliding_window") if "sliding_attention" in kinds else None
    return tuple(size if kind == "sliding_attention" else None for kind in kinds)


def dflash2_shapes(facts: DFlash2Facts, n_layer: int, hidden: int, vocab: int) -> dict[str, Shape]:
    """The tensors that a DFlash2 draft has beside another's."""
    shapes: dict[str, Shape] = {
        PREDECESSORS: (vocab, facts.rank),
        SUCCESSORS: (vocab, facts.rank),
        PROJECTION: (facts.rank, hidden),
    }
    for name in (f"layers.{i}.{conv}" for i in range(n_layer) for conv in (ATTENTION_CONV, MLP_CONV)):
        shapes[f"{name}.base_kernel"] = (2, facts.kernel, hidden)
        shapes[f"{name}.kernel_projection.weight"] = (2 * facts.kernel * (hidden // facts.group), hidden)
    return shapes
