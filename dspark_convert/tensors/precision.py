"""How far rounding to a type moves values: the figures by which a rounded tensor is told from a wrong one.

Distances are the root mean square of the difference over that of the tensor itself; docs/validation.md has
what was measured.
"""

from __future__ import annotations

from dspark_convert.ggufio.types import GGMLType

#: the distance that rounding to a type can explain. F16, BF16: half a unit in the last place. Q8_0: the worst
#: block, all of whose weight is in one number. Others: three times what normal weights have
EXPLAINED: dict[int, float] = {
    GGMLType.F32: 1e-6,
    GGMLType.F16: 4.9e-4,
    GGMLType.BF16: 3.9e-3,
    GGMLType.Q8_0: 2.3e-2,
    GGMLType.Q6_K: 0.05,
    GGMLType.Q5_K: 0.11,
    GGMLType.Q5_1: 0.12,
    GGMLType.Q5_0: 0.13,
    GGMLType.Q4_K: 0.22,
    GGMLType.Q4_1: 0.23,
    GGMLType.IQ4_NL: 0.25,
    GGMLType.IQ4_XS: 0.25,
    GGMLType.Q4_0: 0.27,
    GGMLType.MXFP4: 0.35,
    GGMLType.NVFP4: 0.35,
    GGMLType.Q3_K: 0.45,
}
#: types of fewer bits; two tensors that have nothing to do with each other are 1.4 apart
EXPLAINED_OTHERWISE = 0.7

#: a row may be this many times further away than the whole: short rows scatter
ROW_SCATTER = 3
#: a row of zeros is 1 away, one of another token 1.4, a negated one 2
ROW_LIMIT = 0.9
#: types of one or two bits lie so far away by themselves that only rows of other tokens show
COARSE, COARSE_ROW_LIMIT = 0.5, 1.2
#: rows shorter than this share of the usual length are measured against it: rounding may make zeros of them
SHORT_ROW = 0.01


def explained(kind: int) -> float:
    """The distance that rounding to ``kind`` can explain, of a whole tensor."""
    return EXPLAINED.get(kind, EXPLAINED_OTHERWISE)


def row_limit(whole: float) -> float:
    """The distance that a single row may have where the whole tensor's may be ``whole``."""
    return min(ROW_SCATTER * whole, ROW_LIMIT) if whole < COARSE else COARSE_ROW_LIMIT


def size_limit(whole: float) -> float:
    """How far from 1 the factor between two tensors may be (least squares) where their distance may be ``whole``.

    Rounding is not along the values: it leaves the size to within the square of its distance.
    """
    return whole**2
