"""Acceptance per position: what of the pair does not depend on the machine. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dspark_convert.bench.records import Setting, Turn
from dspark_convert.runtime.report import Acceptance
from dspark_convert.runtime.verdict import SHARE_FLOOR, count_acceptance

#: proposals at a position, or behind accepted ones, below which a curve is not judged
ENOUGH = 30
#: a share behind accepted proposals from which on nothing is wrong, however it runs; published drafts have 0.7 to 0.95
SOUND = 0.6
#: a share of first proposals below which a draft hardly knows the texts; published drafts have 0.4 to 0.9
KNOWS = 0.4
#: deviations by which shares have to fall: chance alone does so once in forty
FALL = -1.96

Shape = Literal["flat", "falls", "low", "nothing", "few"]


def acceptance_of(turns: Iterable[Turn], setting: Setting) -> Acceptance:
    """Counts as dspark-validate's: proposals behind the end of a text are left out."""
    runs = [
        {
            "plain": turn.tokens,
            "rounds": [{"drafts": entry.drafts, "accepted": entry.accepted} for entry in turn.rounds[setting]],
        }
        for turn in turns
    ]
    return count_acceptance(runs, setting.n_max)


@dataclass(frozen=True)
class Diagnosis:
    """``shape``: of the conditional shares over the positions; ``text``: what it says of the draft."""

    shape: Shape
    text: str


def diagnose(acceptance: Acceptance, kind: str) -> Diagnosis:
    """Healthy or not, by how the share accepted where all before were accepted runs over the positions.

    A DSpark draft knows at each position the token before (its Markov head) and sees the same features, so that
    share stays about where it starts. It falls if something that the later slots need is wrong: RoPE, taps, the Markov
    head, the mask token. ``kind`` "dflash" has no Markov head, and falls by nature.
    """
    first, later = acceptance.share(0), later_share(acceptance)
    if acceptance.drafted[0] < ENOUGH:
        return Diagnosis("few", f"only {acceptance.drafted[0]} first proposals: decode more to judge the curve")
    if first < SHARE_FLOOR:
        return Diagnosis(
            "nothing",
            f"only {first:.0%} of the first proposals are accepted: the draft was made for another target, or its"
            " taps, mask token, RoPE or heads are wrong",
        )
    if later is None or sum(acceptance.reached[1:]) < ENOUGH:
        return Diagnosis("few", "too few proposals behind accepted ones to judge the curve: decode more")
    text = f"{first:.0%} of the first proposals are accepted, and {later:.0%} of those behind accepted ones"
    if later >= SOUND or not falls(acceptance):
        if later >= SOUND and first >= KNOWS:
            return Diagnosis("flat", f"{text}: the curve does not fall off, as it should be")
        if later >= SOUND:
            return Diagnosis("low", f"{text}: the curve does not fall off, but the draft knows these texts badly")
        return Diagnosis(
            "low",
            f"{text}, where sound drafts have 70% to 95%: it hardly knows these texts, or it is broken, which"
            " dspark-validate --reference tells apart",
        )
    if kind == "dflash":
        return Diagnosis("falls", f"{text}: the curve falls, as it does without a Markov head")
    return Diagnosis(
        "falls",
        f"{text}, fewer from position to position: that is what a fault in RoPE (q and k permuted wrongly, another"
        " base), in the taps or in the Markov head looks like",
    )


def later_share(acceptance: Acceptance) -> float | None:
    """Accepted of the proposals behind accepted ones, over all positions but the first; None if there are none."""
    reached = sum(acceptance.reached[1:])
    return sum(acceptance.accepted[1:]) / reached if reached else None


def falls(acceptance: Acceptance) -> bool:
    """Whether the conditional shares fall: over all positions, behind the first one, or from it to the rest."""
    tried, accepted = acceptance.reached, acceptance.accepted
    rest = ((tried[0], sum(tried[1:])), (accepted[0], sum(accepted[1:])))
    return any(trend(*part) <= FALL for part in ((tried, accepted), (tried[1:], accepted[1:]), rest))


def trend(tried: Sequence[int], accepted: Sequence[int]) -> float:
    """How shares run over their positions, in deviations: the Cochran-Armitage test for a trend.

    With n_k proposals ``tried`` at position k, x_k of them ``accepted``, p the share over all and m the mean position
    of a proposal: sum(x_k (k - m)) / sqrt(p (1 - p) sum(n_k (k - m)^2)). 0 if there is nothing to compare.
    """
    total = sum(tried)
    if not total:
        return 0.0
    share, mean = sum(accepted) / total, sum(k * n for k, n in enumerate(tried)) / total
    variance = share * (1 - share) * sum(n * (k - mean) ** 2 for k, n in enumerate(tried))
    return sum(x * (k - mean) for k, x in enumerate(accepted)) / math.sqrt(variance) if variance > 0 else 0.0
