"""Choices of experts that rounding decides.

Where a router finds two experts as good as equal, rounding tips which of them is taken, and from there on another thing
is computed: on a tiny draft the logits of such a block are off by as much as two drafts that share nothing. Neither
choice is wrong. So, as the tokens are llama.cpp's on both sides of the comparison, such choices are too: where a
block is off, the reference tries the other expert, only where its own margin is small, and what is then left has to
be within the tolerance like any other block's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dspark_convert.reference.draft import Block
    from dspark_convert.reference.states import Swap
    from dspark_convert.runtime.noise import Tolerance

#: choices of one block that are followed, and those tried for each
MAX_FOLLOWED = 8
MAX_TRIED = 6
#: what rounding alone does, as a part of the tolerance: beyond it a choice is looked for
NOISE = 1 / 3

#: computes the block with these choices going the other way
Compute = Callable[[Collection["Swap"]], "Block"]


class Followed(NamedTuple):
    """``block`` with llama.cpp's choices; ``margin`` is the largest of the ``swaps`` choices that were followed.

    Margins are in deviations of all experts' scores.
    """

    block: Block
    swaps: int = 0
    margin: float = 0.0


def follow_choices(compute: Compute, got: NDArray[Any], first: int, tolerance: Tolerance) -> Followed:
    """The reference's block, with such choices of experts as bring it within ``tolerance`` of ``got``.

    ``got`` [drafts, vocabulary] are llama.cpp's logits of the slots from ``first`` on. Without success, and where
    there is nothing to choose, it is the block as the reference has it.
    """
    own = block = compute(())
    swaps: tuple[Swap, ...] = ()
    largest = 0.0
    while len(swaps) < MAX_FOLLOWED and furthest(block, got, first) > NOISE * tolerance.logits:
        tried = [(swap, compute((*swaps, swap))) for swap in _near(block, got, first, tolerance, swaps)]
        swap, best = min(tried, key=lambda pair: _typical(pair[1], got, first), default=((0, 0), block))
        if _typical(best, got, first) >= _typical(block, got, first) or block.margins is None:
            break
        swaps, largest, block = (*swaps, swap), max(largest, float(block.margins[swap])), best
    if furthest(block, got, first) > tolerance.logits:
        return Followed(own)
    return Followed(block, len(swaps), largest)


def furthest(block: Block, got: NDArray[Any], first: int) -> float:
    """The largest difference of a logit over the deviation of its slot's."""
    apart, deviation = _differences(block, got, first)
    return float((apart.max(1) / deviation).max(initial=0.0))


def _typical(block: Block, got: NDArray[Any], first: int) -> float:
    """The mean over the slots of the root mean square difference: it falls with each choice that is followed."""
    apart, deviation = _differences(block, got, first)
    return float((np.sqrt((apart**2).mean(1)) / deviation).mean())


def _differences(block: Block, got: NDArray[Any], first: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """[slots, vocabulary], and the deviation of each slot's logits; NaN and infinities count as far apart."""
    want = block.logits[first : first + len(got)]
    ours = got[: len(want)].astype(want.dtype)
    finite = np.isfinite(want)  # a reduced vocabulary leaves -inf on the others
    apart = np.where(finite, np.abs(ours - np.where(finite, want, 0.0)), np.where(ours == want, 0.0, np.inf))
    deviation = np.maximum(want.std(1, where=finite), 1e-30)
    return np.nan_to_num(apart, nan=1e9, posinf=1e9), deviation


def _near(block: Block, got: NDArray[Any], first: int, tolerance: Tolerance, followed: Collection[Swap]) -> list[Swap]:
    """The nearest choices below the margin that are not followed yet, those of slots that are off before others."""
    if block.margins is None:
        return []
    apart, deviation = _differences(block, got, first)
    off = {first + int(slot) for slot in np.flatnonzero(apart.max(1) / deviation > NOISE * tolerance.logits)}
    near = [(int(stage), int(slot)) for stage, slot in np.argwhere(block.margins < tolerance.margin)]
    near.sort(key=lambda place: (place[1] not in off, float(block.margins[place])))  # type: ignore[index]
    return [place for place in near if place not in followed][:MAX_TRIED]
