"""Mutants of parts of a tensor: heads and taps in another order, rows and single weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.mutations.changes import HEAD_DIM, HIDDEN, KV_HEADS, LAYERS, TAPS, Array, in_layer, negated_row, on
from tests.mutations.copies import Mutant

#: the order in which a NORM rotation pairs the dimensions of a head, for a NeoX layout, and back
TO_NORM = np.arange(HEAD_DIM).reshape(2, -1).T.reshape(-1)
TO_NEOX = np.arange(HEAD_DIM).reshape(-1, 2).T.reshape(-1)


def per_head(order: Array) -> Callable[[Array], Array]:
    """The rows of each head, or the elements of a norm over a head, in another order."""
    return lambda a: a.reshape(-1, HEAD_DIM, *a.shape[1:])[:, order].reshape(a.shape)


def rotations() -> Iterator[Mutant]:
    for way, order in {"NORM": TO_NORM, "NeoX twice": TO_NEOX}.items():
        for what, parts in {
            "q": ["attn_q"],
            "k": ["attn_k"],
            "q and k": ["attn_q", "attn_k"],
            "q, k and norms": ["attn_q", "attn_k", "attn_q_norm", "attn_k_norm"],
            "norms": ["attn_q_norm", "attn_k_norm"],
        }.items():
            names = [name for layer in range(LAYERS) for name in in_layer(layer, *parts)]
            yield Mutant(f"{what} permuted to {way}", on(names, per_head(order)))
    one = in_layer(1, "attn_q", "attn_k", "attn_q_norm", "attn_k_norm")
    yield Mutant("one layer permuted to NORM", on(one, per_head(TO_NORM)))
    yield Mutant("query heads reversed", on(in_layer(0, "attn_q"), heads_reversed))
    yield Mutant("key heads reversed", on(in_layer(0, "attn_k"), heads_reversed))
    yield Mutant("value heads reversed", on(in_layer(0, "attn_v"), heads_reversed))
    yield Mutant("query heads interleaved over their key heads", on(in_layer(0, "attn_q"), interleaved))

    def columns(a: Array) -> Array:
        return heads_reversed(a.T).T

    yield Mutant("attn_output columns of heads reversed", on(in_layer(0, "attn_output"), columns))


def heads_reversed(a: Array) -> Array:
    return a.reshape(-1, HEAD_DIM, a.shape[-1])[::-1].reshape(a.shape)


def interleaved(a: Array) -> Array:
    return a.reshape(KV_HEADS, -1, HEAD_DIM, a.shape[-1]).swapaxes(0, 1).reshape(a.shape)


def parts() -> Iterator[Mutant]:
    """Pieces of one tensor: the taps' blocks of fc, the confidence's two parts, single weights."""

    def blocks(order: list[int]) -> Callable[[Array], Array]:
        return lambda a: a.reshape(HIDDEN, TAPS, HIDDEN)[:, order].reshape(a.shape)

    for order in ([2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0]):
        yield Mutant(f"fc's taps as {order}", on(["fc.weight"], blocks(order)))

    def taps_last(a: Array) -> Array:
        return a.reshape(HIDDEN, TAPS, HIDDEN).swapaxes(1, 2).reshape(a.shape)

    yield Mutant("fc's taps interleaved", on(["fc.weight"], taps_last))
    yield Mutant("confidence: Markov part first", on(["conf_proj.weight"], lambda a: np.roll(a, -HIDDEN, axis=-1)))
    yield Mutant(
        "confidence: no Markov part", on(["conf_proj.weight"], lambda a: a * (np.arange(a.shape[-1]) < HIDDEN))
    )
    for name in ("fc.weight", "blk.0.attn_q.weight", "blk.1.ffn_down.weight", "markov_w2.weight", "conf_proj.weight"):
        yield Mutant(f"{name}: its largest weight + 1 %", on([name], one_percent))
        yield Mutant(f"{name}: one NaN", on([name], one_nan))
    for name, row in (("markov_w1.weight", 1), ("markov_w1.weight", 1020), ("markov_w2.weight", 1020)):
        yield Mutant(f"{name}: row {row} negated", on([name], negated_row(row)))
    yield Mutant("markov_w1: rows of the added tokens lost", on(["markov_w1.weight"], without_end))
    yield Mutant("markov_w2: rows of the added tokens lost", on(["markov_w2.weight"], without_end))


def one_percent(a: Array) -> Array:
    changed = a.copy()
    changed.flat[np.abs(a).argmax()] *= 1.01
    return changed


def one_nan(a: Array) -> Array:
    changed = a.copy()
    changed.flat[a.size // 2] = np.nan
    return changed


def without_end(a: Array) -> Array:
    return np.where(np.arange(len(a))[:, None] < 997, a, 0).astype(a.dtype)
