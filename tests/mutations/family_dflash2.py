"""Mutants of DFlash2: convolutions before and behind attention and feed-forward, and the selector.

In a file a base is [side, tap, hidden]; rows of a projection are [side, tap, group].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from gguf import GGUFValueType as Type

from tests.mutations.changes import HIDDEN, LAYERS, Array, lost, on, swapped
from tests.mutations.copies import Change, Mutant
from tests.mutations.family_layers import dropped, together
from tests.mutations.metadata import add, write

#: of fixtures.dflash2
KERNEL, GROUP, RANK, TOP_K = 2, 16, 16, 8
GROUPS = HIDDEN // GROUP

BASES = [f"blk.{layer}.{part}_conv_base" for layer in range(LAYERS) for part in ("attn", "ffn")]
PROJECTIONS = [f"blk.{layer}.{part}_conv_proj.weight" for layer in range(LAYERS) for part in ("attn", "ffn")]
BEFORE, AFTER, STATE = (f"selector_{part}.weight" for part in ("predecessor", "successor", "hidden"))


def dflash2() -> Iterator[Mutant]:
    yield from bases()
    yield from projections()
    yield from selector()
    yield from keys()


#: what is done to a base [side, tap, hidden]
TO_BASES: dict[str, Callable[[Array], Array]] = {
    "sides swapped": lambda a: a[::-1],
    "taps swapped": lambda a: a[:, ::-1],
    "in reverse": lambda a: a[..., ::-1],
    "sides and taps exchanged": lambda a: a.swapaxes(0, 1),
    "zeroed": np.zeros_like,
    "taps of one side swapped": lambda a: np.concatenate([a[:1, ::-1], a[1:]]),
    "less one": lambda a: a - np.array([1, 0], np.float32)[:, None],
    "one group late": lambda a: np.roll(a, GROUP, -1),
}


def bases() -> Iterator[Mutant]:
    for name, make in TO_BASES.items():
        yield Mutant(f"bases {name}", on(BASES, make))
    yield Mutant("bases of one layer: sides swapped", on(BASES[2:3], lambda a: a[::-1]))
    yield Mutant("bases of attention and feed-forward swapped", exchanged(BASES))
    yield Mutant("bases of two layers swapped", swapped(BASES[0], BASES[2]))
    yield Mutant("a base lost", lost(BASES[1]))


def exchanged(names: list[str]) -> Change:
    return together(*(swapped(attention, feed) for attention, feed in zip(names[::2], names[1::2], strict=True)))


def rows(*order: int) -> Callable[[Array], Array]:
    """Rows of a projection, read as [side, tap, group], in another order of the axes."""

    def make(a: Array) -> Array:
        return a.reshape(2, KERNEL, GROUPS, HIDDEN).transpose(*order, 3).reshape(a.shape)

    return make


def projections() -> Iterator[Mutant]:
    for name, make in {
        "group, tap, side": rows(2, 1, 0),
        "side, group, tap": rows(0, 2, 1),
        "tap, side, group": rows(1, 0, 2),
        "group, side, tap": rows(2, 0, 1),
    }.items():
        yield Mutant(f"projections as {name}", on(PROJECTIONS, make))

    def split(a: Array) -> Array:
        return a.reshape(2, KERNEL, GROUPS, HIDDEN)

    yield Mutant("projections: sides swapped", on(PROJECTIONS, lambda a: split(a)[::-1].reshape(a.shape)))
    yield Mutant("projections: taps swapped", on(PROJECTIONS, lambda a: split(a)[:, ::-1].reshape(a.shape)))
    yield Mutant("projections: groups in reverse", on(PROJECTIONS, lambda a: split(a)[:, :, ::-1].reshape(a.shape)))
    yield Mutant("projections zeroed", on(PROJECTIONS, np.zeros_like))
    yield Mutant("projections x2", on(PROJECTIONS, lambda a: 2 * a))
    yield Mutant("projections of attention and feed-forward swapped", exchanged(PROJECTIONS))
    yield Mutant("a projection lost", lost(PROJECTIONS[4]))
    yield Mutant("convolutions lost", lost(*BASES, *PROJECTIONS))


def selector() -> Iterator[Mutant]:
    yield Mutant("predecessor and successor swapped", swapped(BEFORE, AFTER))
    yield Mutant("predecessors one token late", on([BEFORE], lambda a: np.roll(a, 1, 0)))
    yield Mutant("successors one token late", on([AFTER], lambda a: np.roll(a, 1, 0)))
    yield Mutant("selector: hidden transposed", on([STATE], lambda a: np.ascontiguousarray(a.T).reshape(a.shape)))
    yield Mutant("selector: hidden with swapped axes", on([STATE], lambda a: np.ascontiguousarray(a.T)))
    yield Mutant("selector: hidden x2", on([STATE], lambda a: 2 * a))
    yield Mutant("selector: hidden zeroed", on([STATE], np.zeros_like))
    yield Mutant("selector: hidden negated", on([STATE], np.negative))
    yield Mutant("selector: hidden's ranks in reverse", on([STATE], lambda a: a[::-1]))
    yield Mutant("selector: successors zeroed", on([AFTER], np.zeros_like))
    yield Mutant("selector: ranks of the predecessors in reverse", on([BEFORE], lambda a: a[:, ::-1]))
    yield Mutant("selector lost", lost(BEFORE, AFTER, STATE))
    yield Mutant("selector's hidden lost", lost(STATE))


def keys() -> Iterator[Mutant]:
    for name, wrong in {
        "selector_top_k": (TOP_K - 1, TOP_K + 1, 1, 2 * TOP_K, 0),
        "selector_rank": (RANK // 2, RANK * 2),
        "conv_group_size": (GROUP // 2, GROUP * 2, 0),
        "conv_kernel_size": (KERNEL - 1, KERNEL + 1),
    }.items():
        for value in wrong:
            yield Mutant(f"{name} {value}", write(name, value))
        yield Mutant(f"{name} dropped", dropped(name))
    yield Mutant("selector's and convolution's keys dropped", dropped("selector_top_k", "selector_rank"))


def muse(multiplier: float, cap: float) -> Iterator[Mutant]:
    yield Mutant("logit scale dropped", dropped("logit_scale"))
    yield Mutant("logit scale inverted", write("logit_scale", 1 / multiplier))
    yield Mutant("logit scale squared", write("logit_scale", multiplier * multiplier))
    yield Mutant("cap dropped", dropped("final_logit_softcapping"))
    yield Mutant("cap 30", write("final_logit_softcapping", 30.0))
    yield Mutant("cap before the scale", write("final_logit_softcapping", cap * multiplier))


def plain_logits() -> Iterator[Mutant]:
    yield Mutant("logits scaled", add(logit_scale=(Type.FLOAT32, 0.5)))
    yield Mutant("logits capped", add(final_logit_softcapping=(Type.FLOAT32, 20.0)))
