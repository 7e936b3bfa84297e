"""Mutants of the published layout: MXFP4 blocks (a scale, then 16 bytes of numbers j and j + 16) and Q8_0's scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.mutations.changes import Array, on
from tests.mutations.copies import Mutant
from tests.mutations.stage_weights import EXPERTS, at

BLOCK = 17


def stage_packing() -> Iterator[Mutant]:
    def of(name: str, make: Callable[[Array], Array], *parts: str) -> Mutant:
        return Mutant(name, on(at(*(parts or EXPERTS)), make), "published")

    yield of("nibbles of each byte exchanged", lambda a: codes(a, lambda b: b << 4 | b >> 4))
    yield of("nibbles exchanged in w2", lambda a: codes(a, lambda b: b << 4 | b >> 4), EXPERTS[2])
    yield of("bytes as published, not repacked", lambda a: codes(a, published))
    yield of("bytes of a block in reverse", lambda a: codes(a, lambda b: b[..., ::-1]))
    yield of("signs lost", lambda a: codes(a, lambda b: b & 0x77))
    yield of("scales one block late", lambda a: scales(a, lambda s: np.roll(s, 1, -1)))
    yield of("scales one row late", lambda a: scales(a, lambda s: np.roll(s, 1, -2)))
    yield of("scales one expert late", lambda a: scales(a, lambda s: np.roll(s, 1, 0)))
    yield of("scales of w1 and w3 in reverse rows", lambda a: scales(a, lambda s: s[:, ::-1]), *EXPERTS[:2])
    yield of("scales twice as large", lambda a: scales(a, lambda s: s + 1), EXPERTS[0])
    yield of("scales all 1", lambda a: scales(a, lambda s: np.full_like(s, 127)))
    yield of("experts in reverse order, as packed", lambda a: a[::-1])
    yield of("rows of w2 in reverse", lambda a: a[:, ::-1], EXPERTS[2])


def blocks(a: Array) -> Array:
    """[experts, rows, blocks, 17]."""
    return a.reshape(*a.shape[:2], -1, BLOCK)


def codes(a: Array, make: Callable[[Array], Array]) -> Array:
    split = blocks(a)
    return np.concatenate([split[..., :1], make(split[..., 1:]).astype(np.uint8)], -1).reshape(a.shape)


def scales(a: Array, make: Callable[[Array], Array]) -> Array:
    split = blocks(a)
    return np.concatenate([make(split[..., 0])[..., None].astype(np.uint8), split[..., 1:]], -1).reshape(a.shape)


def published(b: Array) -> Array:
    """The bytes as the checkpoint has them: numbers 2j and 2j + 1 in byte j."""
    numbers = np.concatenate([b & 15, b >> 4], -1)
    pairs: Array = numbers[..., 0::2] | numbers[..., 1::2] << 4
    return pairs
