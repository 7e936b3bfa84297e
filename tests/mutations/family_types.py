"""Mutants of what holds a value: another type, shape or name than llama.cpp asks for, numbers that are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gguf import GGUFValueType as Type

from tests.mutations.changes import HIDDEN, Array, on
from tests.mutations.copies import Change, Copy, Mutant, Value
from tests.mutations.family_dflash2 import AFTER, BASES, BEFORE
from tests.mutations.family_gemma4 import FREQS
from tests.mutations.family_heads import D2T, EMBED, HEAD
from tests.mutations.family_layers import PATTERN, WINDOW, every, renamed
from tests.mutations.family_packing import UP
from tests.mutations.metadata import MASK, TOKENS, retyped, without, write


def put(name: str, kind: Type, value: Any, item: Type | None = None) -> Change:
    return lambda file: file.kv.update({f"dflash.{name}": Value(kind, value, item)})


def half(a: Array) -> Array:
    return a.astype(np.float16)


def one_row(row: int, number: float) -> Any:
    return lambda a: np.where(np.arange(len(a))[:, None] == row, number, a).astype(np.float32)


def extra(name: str, tensor: Array) -> Change:
    def change(file: Copy) -> None:
        file.tensors[name] = tensor

    return change


def layer_types() -> Iterator[Mutant]:
    """Of windows, sinks and the scale of values."""
    for what, value in {"u8": ([1, 1, 1], Type.UINT8), "of four": ([True] * 4, Type.BOOL)}.items():
        yield Mutant(f"pattern {what}", put(PATTERN, Type.ARRAY, *value))
    yield Mutant("pattern as every second layer", put(PATTERN, Type.UINT32, 2))
    yield Mutant("window of 64 bits", retyped(f"dflash.{WINDOW}", Type.UINT64))
    yield Mutant("window of each layer", put(WINDOW, Type.ARRAY, [12] * 3, Type.UINT32))
    yield Mutant("value scale of 64 bits", retyped("dflash.attention.value_scale", Type.FLOAT64))
    yield Mutant("value scale negative", write("attention.value_scale", -0.612))
    yield Mutant("an odd number of dimensions rotated", write("rope.dimension_count", 15))
    yield Mutant("sinks F16", on(every("attn_sinks"), half))
    yield Mutant("sinks of two heads", on(every("attn_sinks"), lambda a: a[:2]))
    yield Mutant("sinks infinite", on(every("attn_sinks"), lambda a: np.full_like(a, np.inf)))
    yield Mutant("mask row not a number", on([EMBED], one_row(507, np.nan)))
    yield Mutant("another row zeroed", on([EMBED], one_row(100, 0)))
    yield Mutant("another row of the head zeroed", on([HEAD], one_row(100, 0)))


def scale_types() -> Iterator[Mutant]:
    """Of the scales beside NVFP4's matrices."""
    name = f"{UP}.scale"
    yield Mutant("scale F16", on([name], half))
    yield Mutant("scale of two numbers", on([name], lambda a: np.repeat(a, 2)))
    yield Mutant("scale not a number", on([name], lambda a: a * np.float32("nan")))
    yield Mutant("scale negative", on([name], np.negative))
    yield Mutant("scale 0", on([name], np.zeros_like))
    yield Mutant("scales' names as published", renamed(".scale", ".weight_scale_2"))
    yield Mutant("causal flag as a number", put("attention.causal", Type.UINT8, 1))


def yarn_types() -> Iterator[Mutant]:
    for kind in ("YARN", "longrope", "deepseek_yarn"):
        yield Mutant(f"yarn type {kind}", write("rope.scaling.type", kind))
    yield Mutant("yarn factor an integer", put("rope.scaling.factor", Type.UINT32, 16))
    yield Mutant("yarn logarithm's multiplier", put("rope.scaling.yarn_log_multiplier", Type.FLOAT32, 0.1))
    yield Mutant("context of the first training", write("context_length", 64))
    yield Mutant("frequencies of the target", extra(FREQS, np.full(16, 2, np.float32)))


def vocabulary_types() -> Iterator[Mutant]:
    yield Mutant("d2t with a suffix", renamed(D2T, f"{D2T}.weight"))
    yield Mutant("t2d beside it", extra("t2d", np.ones(512, np.int8)))
    yield Mutant("embeddings of another draft", extra(EMBED, np.ones((512, HIDDEN), np.float32)))
    yield Mutant("tokens of the draft's vocabulary", lambda file: file.set(TOKENS, file.kv[TOKENS].value[:320]))
    yield Mutant("vocabulary size of the draft's", put("vocab_size", Type.UINT32, 320))
    yield Mutant("mask missing", without(MASK))


def gemma4_types() -> Iterator[Mutant]:
    scales = every("layer_output_scale")
    yield Mutant("rope_freqs of half a head", on([FREQS], lambda a: a[:16]))
    yield Mutant("rope_freqs infinite", on([FREQS], lambda a: np.where(a > 1, np.inf, a).astype(np.float32)))
    yield Mutant("rope_freqs of a million", on([FREQS], lambda a: np.where(a > 1, 1e6, a).astype(np.float32)))
    yield Mutant("rope_freqs in a layer", extra(f"blk.0.{FREQS}", np.ones(32, np.float32)))
    yield Mutant("layer scales F16", on(scales, half))
    yield Mutant("layer scales a vector", on(scales, lambda a: np.repeat(a, HIDDEN)))
    yield Mutant("embedding scale an integer", put("embedding_scale", Type.UINT32, 11))
    yield Mutant("embedding scale rounded to BF16", write("embedding_scale", 11.3125))
    yield Mutant("GELU without the table", write("hidden_activation", "gelu_erf"))
    yield Mutant("post_ffw_norm by another name", renamed("post_ffw_norm", "post_ffn_norm"))
    yield Mutant("keys of two heads", write("attention.head_count_kv", 2))


def dflash2_types() -> Iterator[Mutant]:
    yield Mutant("bases F16", on(BASES, half))
    yield Mutant("bases in one row", on(BASES, lambda a: a.reshape(-1)))
    yield Mutant("bases with the channels last in ggml's order", on(BASES, lambda a: a.transpose(2, 1, 0)))
    yield Mutant("bases with a suffix", renamed("conv_base", "conv_base.weight"))
    yield Mutant("top_k of 64 bits", retyped("dflash.selector_top_k", Type.UINT64))
    yield Mutant("top_k more than fits", write("selector_top_k", 11))
    yield Mutant("predecessors of a smaller vocabulary", on([BEFORE], lambda a: a[:320]))
    yield Mutant("a successor not a number", on([AFTER], one_row(7, np.nan)))
    yield Mutant("a predecessor zeroed", on([BEFORE], one_row(510, 0)))
    yield Mutant("embeddings scaled", put("embedding_scale", Type.FLOAT32, 2.0))
