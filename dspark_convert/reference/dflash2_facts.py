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
    """``kernel`` taps; ``group`` channels share what the projection adds to them. ``top_k`` tokens a slot compete."""

    kernel: int
    group: int
    rank: int
    top_k: int


def read_dflash2(config: Config, shapes: Mapping[str, Shape]) -> DFlash2Facts | None:
    """None for another draft. Raises ValueError where config and tensors contradict each other."""
    if PREDECESSORS not in shapes and config.architecture() != DFLASH2:
        return None
    facts = DFlash2Facts(
        kernel=config.integer("dflash_config.conv_kernel_size", "conv_kernel_size"),
        group=config.integer("dflash_config.conv_group_size", "conv_group_size"),
        rank=config.integer("dflash_config.selector_rank", "selector_rank"),
        top_k=config.integer("dflash_config.selector_top_k", "selector_top_k"),
    )
    stored, hidden, vocab = columns(shapes, PREDECESSORS), config.integer("hidden_size"), config.integer("vocab_size")
    if facts.rank != stored:
        raise ValueError(f"{config.path}: selector_rank is {facts.rank}, but {PREDECESSORS} has {stored} columns.")
    if hidden % facts.group:
        raise ValueError(f"{config.path}: hidden_size {hidden} is no multiple of conv_group_size {facts.group}.")
    if facts.top_k > vocab:
        raise config.wrong("dflash_config.selector_top_k", f"at most the vocab_size {vocab}", facts.top_k)
    return facts


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
