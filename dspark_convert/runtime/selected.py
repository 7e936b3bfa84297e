"""DFlash2's selector: its candidates and their scores, llama.cpp's against the reference's.

Where two tokens are as good as equal, rounding decides which of them is a candidate. As the tokens are llama.cpp's on
both sides of the comparison, the candidates are too; each has to be among the reference's best or as good as those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dspark_convert.reference.draft import Block
    from dspark_convert.reference.facts import Facts
    from dspark_convert.runtime.recording import Recording


@dataclass(frozen=True)
class Selected:
    """``relative``: the largest difference of a score, in deviations of its slot's logits; ``furthest``: how far a
    candidate is behind a token that is none, in the same unit."""

    relative: float
    furthest: float


def fit_candidates(recording: Recording, index: int, facts: Facts) -> NDArray[np.int64] | None:
    """llama.cpp's candidates in round ``index``, [slots, k]; None if there are none.

    Raises ValueError if they are not those of such a draft.
    """
    if facts.dflash2 is None or not recording.candidates.size:
        return None
    found: NDArray[np.int64] = recording.candidates[index]
    if len(found) != facts.slots:
        raise ValueError(f"the file selects in {len(found)} slots, the checkpoint in {facts.slots}")
    return found


def compare_selected(block: Block, recording: Recording, index: int) -> Selected | None:
    """One block's; None without a selector."""
    if block.lattice is None or not recording.candidates.size:
        return None
    deviation = np.maximum(block.logits[1:].std(1), 1e-30)
    ours, theirs = recording.scores[index][1:], block.lattice.scores[1:]
    if ours.shape != theirs.shape:
        raise ValueError(f"the file selects among {ours.shape[-1]} candidates, the checkpoint {theirs.shape[-1]}")
    apart = np.nan_to_num(np.abs(ours.astype(theirs.dtype) - theirs), nan=np.inf).max((1, 2), initial=0.0)
    return Selected(float((apart / deviation).max(initial=0.0)), float(block.lattice.behind.max(initial=0.0)))


def worst_selected(found: Sequence[Selected]) -> Selected | None:
    if not found:
        return None
    return Selected(max(one.relative for one in found), max(one.furthest for one in found))


def tell_selected(selected: Selected, allowed: float) -> str:
    """What there is to say, as a clause."""
    if selected.relative > allowed:
        return f"the selector's scores differ by up to {selected.relative:.2g} of the logits' deviation"
    if selected.furthest > allowed:
        return f"a candidate of the selector's is {selected.furthest:.2g} of the logits' deviation behind a better one"
    return f"the selector's scores to within {selected.relative:.2g}"
