"""Mutants of NVFP4 in GGUF's blocks: 4 scales, then 32 bytes; 8 bytes have numbers j and j + 8 of each scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.mutations.changes import Array, lost, on, swapped
from tests.mutations.copies import Change, Copy, Mutant
from tests.mutations.family_layers import every

SCALES, BLOCK = 4, 36
#: where this family has NVFP4
NAMES = ["fc.weight", "markov_w2.weight", *every("ffn_gate", "ffn_up", "ffn_down")]
GATE, UP, DOWN = (f"blk.0.ffn_{part}" for part in ("gate", "up", "down"))


def packing() -> Iterator[Mutant]:
    def of(name: str, make: Callable[[Array], Array], names: list[str] = NAMES) -> Mutant:
        return Mutant(name, on(names, make))

    yield of("nibbles of each byte exchanged", lambda a: codes(a, lambda b: b << 4 | b >> 4))
    yield of("nibbles of one tensor exchanged", lambda a: codes(a, lambda b: b << 4 | b >> 4), [f"{DOWN}.weight"])
    yield of("bytes as published, not repacked", lambda a: codes(a, published))
    yield of("bytes repacked as MXFP4's, 32 to a scale", lambda a: codes(a, halves_of_32))
    yield of("signs lost", lambda a: codes(a, lambda b: b & 0x77))
    yield of("scales one late", lambda a: scales(a, lambda s: np.roll(s.reshape(len(s), -1), 1, 1).reshape(s.shape)))
    yield of("scales of each block in reverse", lambda a: scales(a, lambda s: s[..., ::-1]))
    yield of("scales one row late", lambda a: scales(a, lambda s: np.roll(s, 1, 0)))
    yield of("scales twice as large", lambda a: scales(a, lambda s: np.minimum(s + 8, 126)), [f"{DOWN}.weight"])
    yield of("rows in reverse", lambda a: a[::-1], [f"{UP}.weight"])
    yield from whole_scales()


def whole_scales() -> Iterator[Mutant]:
    """The tensor's own scale, which lies beside it."""
    yield Mutant("scale of a tensor lost", lost(f"{DOWN}.scale"))
    yield Mutant("scale of w2 lost", lost("markov_w2.scale"))
    yield Mutant("all scales lost", lost(*(name.replace(".weight", ".scale") for name in NAMES)))
    yield Mutant("scales of gate and up swapped", swapped(f"{GATE}.scale", f"{UP}.scale"))
    yield Mutant("scales of w2 and a layer swapped", swapped("markov_w2.scale", f"{DOWN}.scale"))
    yield Mutant("scale inverted", on([f"{DOWN}.scale"], lambda a: 1 / a))
    yield Mutant("scale squared", on([f"{UP}.scale"], np.square))
    yield Mutant("scale 1", on(["fc.scale"], np.ones_like))
    yield Mutant("scale x1.01", on([f"{DOWN}.scale"], lambda a: a * np.float32(1.01)))
    yield Mutant("scale of the activations beside it", added("blk.0.ffn_down.input_scale"))
    yield Mutant("scale of queries without", added("blk.0.attn_q.scale"))
    yield Mutant("scale of values without", added("blk.0.attn_v.scale"))


def added(name: str) -> Change:
    def change(file: Copy) -> None:
        file.tensors[name] = np.full(1, 0.5, np.float32)

    return change


def blocks(a: Array) -> Array:
    """[rows, blocks, 36]."""
    return a.reshape(len(a), -1, BLOCK)


def codes(a: Array, make: Callable[[Array], Array]) -> Array:
    split = blocks(a)
    return np.concatenate([split[..., :SCALES], make(split[..., SCALES:]).astype(np.uint8)], -1).reshape(a.shape)


def scales(a: Array, make: Callable[[Array], Array]) -> Array:
    split = blocks(a)
    return np.concatenate([make(split[..., :SCALES]).astype(np.uint8), split[..., SCALES:]], -1).reshape(a.shape)


def numbers(b: Array, shared: int) -> Array:
    """The codes [rows, blocks, 64] of bytes whose halves lie ``shared`` / 2 apart."""
    parts = b.reshape(*b.shape[:2], -1, shared // 2)
    return np.concatenate([parts & 15, parts >> 4], -1).reshape(*b.shape[:2], -1)


def published(b: Array) -> Array:
    """Numbers 2j and 2j + 1 in byte j."""
    found = numbers(b, 16)
    pairs: Array = found[..., 0::2] | found[..., 1::2] << 4
    return pairs


def halves_of_32(b: Array) -> Array:
    """Numbers j and j + 16 in byte j of 16."""
    found = numbers(b, 16).reshape(*b.shape[:2], 2, 2, 16)
    packed: Array = found[..., 0, :] | found[..., 1, :] << 4
    return packed.reshape(b.shape)
