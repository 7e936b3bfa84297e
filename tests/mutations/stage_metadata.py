"""Mutants of the key/values that a DeepSeek-V4 draft has beside others, and of those that all drafts have."""

from __future__ import annotations

from collections.abc import Iterator

from gguf import GGUFValueType as Type

from tests.mutations.copies import Mutant
from tests.mutations.metadata import MASK, add, only, write

#: (key, wrong value): the runtime's, and the file's own twin of it where it has one
WRONG = (
    ("block_size", 4),
    ("block_size", 6),
    ("target_layers", [1, 2, 3]),
    ("target_layers", [3, 2, 4]),
    ("target_layers", [2, 3, 3]),
    ("sample_from_anchor", False),
    ("has_confidence_head", False),
    ("attention.layer_norm_rms_epsilon", 1e-5),
    ("attention.sliding_window", 7),
    ("attention.sliding_window", 9),
    ("attention.sliding_window", 128),
    ("rope.dimension_count", 32),
    ("rope.dimension_count", 8),
    ("rope.freq_base", 160000.0),
    ("expert_used_count", 2),
    ("expert_used_count", 4),
    ("expert_weights_scale", 1.0),
    ("expert_weights_norm", False),
    ("expert_gating_func", 1),
    ("expert_gating_func", 2),
    ("swiglu_clamp_exp", [10.0, 10.0, 10.0]),
    ("swiglu_clamp_shexp", [10.0, 10.0, 10.0]),
    ("hyper_connection.sinkhorn_iterations", 19),
    ("hyper_connection.sinkhorn_iterations", 1),
    ("hyper_connection.epsilon", 1e-5),
    ("hyper_connection.epsilon", 1e-2),
    ("attention.compress_ratios", [0, 0, 4]),
    ("attention.output_group_count", 4),
    ("context_length", 512),
)


def stage_metadata() -> Iterator[Mutant]:
    for key, value in WRONG:
        yield Mutant(f"{key} is {value}", write(key, value))
    yield Mutant("mask token of another id", only(MASK, 506))
    yield Mutant("causal", add(attention__causal=(Type.BOOL, True)))
    yield Mutant("NeoX sections", add(rope__dimension_sections=(Type.ARRAY, [8, 0, 0, 0], Type.INT32)))
