"""Choices of experts that rounding decides.

Where a router finds two experts as good as equal, rounding tips which of them is taken, and from there on another thing
is computed: on a tiny draft the logits of such a block are off by as much as two drafts that share nothing. Neither
choice is wrong. So, as the tokens are llama.cpp's on both sides of the comparison, the experts are too; and apart from
what is then computed, each of its choices has to be the reference's best or as good as that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dspark_convert.reference.facts import Facts
    from dspark_convert.runtime.recording import Recording

#: said of a library that shows no choices
UNREAD = (
    "this llama.cpp library does not show which experts it takes, so the reference takes its own; where two are as good"
    " as equal, rounding decides, and a block in which it does differs by far with nothing wrong"
)

#: in place of an expert's number: the reference takes its own
FREE = -1


@dataclass(frozen=True)
class Choices:
    """``made``: one a token and stage. ``others`` are not the reference's own.

    ``furthest``: how far an expert that was taken is behind one that was not, by the reference's scores and in
    their deviations.
    """

    made: int
    others: int
    furthest: float


def add_up(behind: Sequence[NDArray[Any]]) -> Choices | None:
    """Of blocks ``behind`` [stages, slots] each; None without any."""
    found = np.concatenate([block.ravel() for block in behind]) if behind else np.empty(0)
    if not found.size:
        return None
    return Choices(found.size, int((found > 0).sum()), float(found.max()))


def fit_experts(recording: Recording, index: int, facts: Facts) -> NDArray[np.int64] | None:
    """llama.cpp's experts in round ``index`` for the reference's slots, [stages, slots, used]; None if unknown.

    ``FREE`` where llama.cpp has no such slot. Raises ValueError if they are not the experts of such a draft.
    """
    if facts.stages is None or not recording.experts.size:
        return None
    taken = recording.experts[index]
    stages, slots, used = taken.shape
    if (stages, used) != (facts.n_layer, facts.stages.n_expert_used):
        raise ValueError(
            f"llama.cpp takes {used} experts at {stages} stages, the checkpoint {facts.stages.n_expert_used} at"
            f" {facts.n_layer}"
        )
    ordered = np.sort(taken, axis=-1)
    if ordered.min() < 0 or ordered.max() >= facts.stages.n_expert or not np.diff(ordered, axis=-1).all():
        raise ValueError(
            f"what llama.cpp took are not different experts of {facts.stages.n_expert}: {taken[0, 0].tolist()}"
        )
    fitted = np.full((stages, facts.slots, used), FREE, np.int64)
    fitted[:, :slots] = taken[:, : facts.slots]
    return fitted
