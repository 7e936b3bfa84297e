"""Does the confidence head say how often it is right? Pure functions.

The head predicts, for each slot, whether its proposal is accepted given that all before were. So it is compared with
just those proposals: the first of each block, and each behind an accepted one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dspark_convert.bench.records import Setting, Turn

BINS = 10


@dataclass(frozen=True)
class Bin:
    """Proposals with a confidence from ``low`` up to ``high``: their mean confidence, and the share accepted."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


@dataclass(frozen=True)
class Calibration:
    """``ece``: the expected calibration error, mean |predicted - observed| over the bins, weighted by their counts.

    ``brier``: mean squared difference of confidence and outcome (0 or 1); ``base_brier``: that of the constant
    ``observed``, which a head that tells nothing apart reaches.
    """

    bins: tuple[Bin, ...]
    count: int
    predicted: float
    observed: float
    ece: float
    brier: float
    base_brier: float


def pairs_of(turns: Iterable[Turn], setting: Setting) -> list[tuple[float, bool]]:
    """(confidence, accepted) of every proposal whose predecessors were accepted, within the texts' ends."""
    found = []
    for turn in turns:
        left = turn.counted
        for entry in turn.rounds[setting]:
            reached = max(0, min(len(entry.drafts), entry.accepted + 1, left))
            for position, confidence in enumerate((entry.confidences or ())[:reached]):
                found.append((confidence, position < entry.accepted))
            left -= entry.accepted + 1
    return found


def calibrate(pairs: Sequence[tuple[float, bool]]) -> Calibration | None:
    """The reliability table of ``pairs`` in bins of equal width, empty ones left out; None without pairs."""
    if not pairs:
        return None
    held: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for pair in pairs:
        held[min(max(int(pair[0] * BINS), 0), BINS - 1)].append(pair)
    bins = tuple(_bin(index, members) for index, members in enumerate(held) if members)
    count = len(pairs)
    observed = sum(accepted for _, accepted in pairs) / count
    return Calibration(
        bins=bins,
        count=count,
        predicted=sum(confidence for confidence, _ in pairs) / count,
        observed=observed,
        ece=sum(entry.count * abs(entry.predicted - entry.observed) for entry in bins) / count,
        brier=sum((confidence - accepted) ** 2 for confidence, accepted in pairs) / count,
        base_brier=observed * (1 - observed),
    )


def _bin(index: int, members: Sequence[tuple[float, bool]]) -> Bin:
    count = len(members)
    predicted = sum(confidence for confidence, _ in members) / count
    return Bin(index / BINS, (index + 1) / BINS, count, predicted, sum(accepted for _, accepted in members) / count)
