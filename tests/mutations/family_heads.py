"""Mutants of what a draft's words come out of: a vocabulary of its own, the Markov head, the mask token's row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from gguf import GGUFValueType as Type

from tests.mutations.changes import HIDDEN, Array, lost, on, swapped
from tests.mutations.copies import Copy, Mutant
from tests.mutations.family_layers import dropped, together
from tests.mutations.metadata import add, write
from tests.mutations.weights import TABLES

D2T, HEAD, EMBED, W1, W2 = "d2t", TABLES[1], TABLES[0], "markov_w1.weight", "markov_w2.weight"


def markov() -> Iterator[Mutant]:
    """Of a file whose w1 and w2 have as many rows, both as plain numbers."""
    yield Mutant("markov_w1 and markov_w2 swapped", swapped(W1, W2))
    yield Mutant("Markov head negated", on([W2], np.negative))
    yield from markov_rows()


def markov_rows() -> Iterator[Mutant]:
    yield Mutant("markov_w2 one token late", on([W2], lambda a: np.roll(a, 1, 0)))
    yield Mutant("markov_w1 one token late", on([W1], lambda a: np.roll(a, 1, 0)))
    yield Mutant("Markov head lost", lost(W1, W2))


def confidence() -> Iterator[Mutant]:
    yield Mutant("confidence: Markov part first", on(["conf_proj.weight"], lambda a: np.roll(a, -HIDDEN, -1)))
    yield Mutant("confidence flag false", write("has_confidence_head", False))
    yield Mutant("confidence negated", on(["conf_proj.weight", "conf_proj.bias"], np.negative))


def no_confidence() -> Iterator[Mutant]:
    yield Mutant("confidence flag dropped", dropped("has_confidence_head"))
    yield Mutant("confidence flag true", write("has_confidence_head", True))


def no_markov() -> Iterator[Mutant]:
    """A class of DFlash, for which llama.cpp reads from the first mask on."""
    zeros = {W1: np.zeros((512, 32), np.float32), W2: np.zeros((512, 32), np.float32)}

    def headed(file: Copy) -> None:
        file.tensors |= zeros
        write("sample_from_anchor", True)(file)

    yield Mutant("a Markov head of zeros, read from the anchor", headed)


def head_of_zeros() -> Iterator[Mutant]:
    """A draft without Markov head that is read from the anchor, for which llama.cpp has to see one."""
    yield Mutant("no head of zeros", lost(W1, W2))
    yield Mutant("the head not zero", on([W1, W2], lambda a: a + np.float32(0.1)))


def bonus() -> Iterator[Mutant]:
    """The anchor's slot proposes nothing."""
    yield Mutant("anchor flag dropped", dropped("sample_from_anchor"))
    yield Mutant(
        "block counted in proposals, read from the anchor",
        together(write("block_size", 7), write("sample_from_anchor", True)),
    )


#: ids [draft vocabulary] -> wrong ones
MAPPINGS: dict[str, Callable[[Array], Array]] = {
    "offsets": lambda a: a - np.arange(len(a)),
    "added twice": lambda a: np.minimum(a + np.arange(len(a)), 511),
    "one less": lambda a: np.maximum(a - 1, 0),
    "one more": lambda a: np.minimum(a + 1, 511),
    "two swapped": lambda a: np.concatenate([a[:10], a[11:9:-1], a[12:]]),
    "reversed": lambda a: a[::-1],
    "rotated": lambda a: np.roll(a, 1),
    "first ids": lambda a: np.arange(len(a)),
    "last one beyond": lambda a: np.concatenate([a[:-1], [512]]),
    "one twice": lambda a: np.concatenate([a[:20], a[19:20], a[21:]]),
    "negative": lambda a: np.concatenate([[-1], a[1:]]),
    "1 where the target's token is the draft's": lambda a: np.isin(np.arange(512), a),
}


def vocabulary() -> Iterator[Mutant]:
    """320 of the target's 512 tokens: ``d2t`` has the target's id of each of the head's rows."""
    for what, make in MAPPINGS.items():
        yield Mutant(f"d2t: {what}", on([D2T], partial(mapped, make)))
    yield Mutant("d2t of 32 bits", on([D2T], lambda a: a.astype(np.int32)))
    yield Mutant("d2t of floats", on([D2T], lambda a: a.astype(np.float32)))
    yield Mutant("d2t lost", lost(D2T))
    yield Mutant("d2t and head lost", lost(D2T, HEAD))
    yield Mutant("head lost", lost(HEAD))
    yield Mutant("head's rows in reverse", on([HEAD], lambda a: a[::-1]))
    yield Mutant("head's rows one late", on([HEAD], lambda a: np.roll(a, 1, 0)))
    yield Mutant("head's first two rows swapped", on([HEAD], lambda a: np.concatenate([a[1::-1], a[2:]])))
    yield Mutant("head and d2t in reverse", on([HEAD, D2T], lambda a: a[::-1]))
    yield Mutant("head one row short", on([HEAD], lambda a: a[:-1]))


def mapped(make: Callable[[Array], Array], ids: Array) -> Array:
    return make(ids).astype(np.int64)


def vocabulary_markov() -> Iterator[Mutant]:
    """Rows of w1 are the target's tokens, rows of w2 the draft's."""
    yield Mutant("w2's rows in reverse", on([W2], lambda a: a[::-1]))
    yield Mutant("w2 with a row for each of the target's tokens", on([W2], lambda a: np.resize(a, (512, a.shape[1]))))
    yield Mutant("head, w2 and d2t in reverse", on([HEAD, W2, D2T], lambda a: a[::-1]))
    yield Mutant("w1 with the draft's rows", on([W1], lambda a: a[:320]))
    yield Mutant("w1's rows by the draft's ids", on([W1], lambda a: np.concatenate([a[::-1][:320], a[320:]])))


def mask_row(mask: int) -> Iterator[Mutant]:
    """The draft has a row of its own for the mask token, so that the file has the target's tables with that row."""
    yield Mutant("mask row of the token before", on([EMBED], lambda a: with_row(a, mask, a[mask - 1])))
    yield Mutant("mask row at the id before", on([EMBED], lambda a: exchanged(a, mask, mask - 1)))
    yield Mutant("mask row at the id behind", on([EMBED], lambda a: exchanged(a, mask, mask + 1)))
    yield Mutant("mask row zeroed", on([EMBED], lambda a: with_row(a, mask, 0 * a[mask])))
    yield Mutant("mask row x2", on([EMBED], lambda a: with_row(a, mask, 2 * a[mask])))
    yield Mutant("mask row negated", on([EMBED], lambda a: with_row(a, mask, -a[mask])))
    yield Mutant("mask row in every row of padding", on([EMBED], lambda a: np.where(beyond(a, mask), a[mask], a)))
    yield Mutant("mask row in the head", on([HEAD], lambda a: with_row(a, mask, -a[mask])))
    yield Mutant("tables left to the target", lost(EMBED, HEAD))
    yield Mutant("head left to the embeddings", lost(HEAD))
    yield Mutant("tables swapped", swapped(EMBED, HEAD))


def beyond(a: Array, mask: int) -> Array:
    result: Array = (np.arange(len(a)) >= mask)[:, None]
    return result


def with_row(a: Array, row: int, values: Array) -> Array:
    return np.concatenate([a[:row], values[None], a[row + 1 :]]).astype(a.dtype)


def exchanged(a: Array, one: int, other: int) -> Array:
    order = np.arange(len(a))
    order[[one, other]] = other, one
    return a[order]


def scaled_logits() -> Iterator[Mutant]:
    """Keys that llama.cpp reads for other drafts."""
    yield Mutant("logits capped, which is not read", add(final_logit_softcapping=(Type.FLOAT32, 30.0)))
    yield Mutant("logits scaled, which is not read", add(logit_scale=(Type.FLOAT32, 0.5)))
