"""Which differences the types of two tensors explain, if both hold roundings of the same numbers.

F32, F16, BF16 and Q8_0 have one right rounding, so each number has a bound of its own. For the types of
fewer bits a quantiser chooses scales, and tensors are judged as a whole and row by row.
"""

from __future__ import annotations

import numpy as np

from dspark_convert.diff.reading import INTEGERS, Numbers
from dspark_convert.diff.sums import Bound
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors.precision import explained

#: half a unit in the last place as a share of the number, and of the smallest (subnormal) numbers; F64 is read as F32
PLAIN: dict[int, tuple[float, float]] = {
    **dict.fromkeys(INTEGERS, (0.0, 0.0)),
    **dict.fromkeys((GGMLType.F32, GGMLType.F64), (2.0**-24, 2.0**-150)),
    GGMLType.F16: (2.0**-11, 2.0**-25),
    GGMLType.BF16: (2.0**-8, 2.0**-134),
}
#: a block's numbers are multiples of largest / 127, whose F16 scale is rounded too
Q8_CODES, Q8_BLOCK = 127, 32
#: a bound is met exactly by some numbers, and computed from those that are rounded already
SLACK = 1.01

#: types whose quantisers choose, so that two files of one type may hold the same numbers differently rounded;
#: of the others one source gives one result
CHOSEN = frozenset(GGMLType) - PLAIN.keys() - {GGMLType.Q8_0, GGMLType.MXFP4}


def limit(a: GGMLType, b: GGMLType) -> float:
    """The distance of whole tensors that the coarser of both types explains; 0 where one source gives one result."""
    if a == b:
        return explained(a) if a in CHOSEN else 0.0
    return max(_explained(a), _explained(b))


def _explained(kind: GGMLType) -> float:
    return explained(GGMLType.F32 if kind in (GGMLType.F64, *INTEGERS) else kind)


def bound(a: GGMLType, b: GGMLType) -> Bound | None:
    """The largest difference of each number that rounding to both types explains; None if that is not known."""
    if a == b or not {a, b} <= {*PLAIN, GGMLType.Q8_0}:
        return None

    def largest(x: Numbers, y: Numbers) -> Numbers:
        both: Numbers = SLACK * (_error(a, x, np.abs(y)) + _error(b, y, np.abs(x)))
        return both

    return largest


def _error(kind: GGMLType, rounded: Numbers, other: Numbers) -> Numbers:
    """How far ``rounded``, of type ``kind``, may be from what was rounded, which is near ``other``."""
    if kind is not GGMLType.Q8_0:
        share, least = PLAIN[kind]
        error: Numbers = np.maximum(share * np.maximum(np.abs(rounded), other), least)
        return error
    step = np.abs(rounded).reshape(-1, Q8_BLOCK).max(axis=1) / Q8_CODES
    scale_error = np.maximum(step * 2.0**-11, 2.0**-25)
    return np.repeat(step / 2 + Q8_CODES * scale_error, Q8_BLOCK)
