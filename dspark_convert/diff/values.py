"""The values of one tensor on both sides: how far apart, and does rounding explain it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dspark_convert.diff.bounds import bound, limit
from dspark_convert.diff.reading import CHUNK, raw, unreadable
from dspark_convert.diff.sides import Advance, Side, SideTensor
from dspark_convert.diff.sums import Sums
from dspark_convert.ggufio.reader import GGUFTensor
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors.precision import row_limit, size_limit
from dspark_convert.words import listed

#: identical  the same bytes of the same type
#: equal      other bytes that mean the same numbers
#: rounding   no further apart than rounding to the types explains
#: different  further
#: unread     the numbers cannot be read, and the bytes are not the same
Judgement = Literal["identical", "equal", "rounding", "different", "unread"]

#: matrices of a stack that are named
TOLD_MATRICES = 6


@dataclass(frozen=True)
class ValueDiff:
    """``relative`` is ``rms`` (of the difference) over A's root mean square; ``expected`` the ``relative`` that
    rounding to the coarser type explains. The figures are None for what is unread. ``note`` is a clause.
    """

    name: str
    types: tuple[str, str]
    judgement: Judgement
    max_abs: float | None = None
    rms: float | None = None
    relative: float | None = None
    cosine: float | None = None
    expected: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in ("max_abs", "rms", "relative", "cosine", "expected")}
        return {"name": self.name, "types": list(self.types), "judgement": self.judgement, **figures, "note": self.note}


def compare_values(name: str, a: Side, first: SideTensor, b: Side, second: SideTensor, advance: Advance) -> ValueDiff:
    """Both have one shape, up to trailing ones. ``advance`` is told the bytes of both, each once."""
    types = _type(a, first), _type(b, second)
    named = types[0][1], types[1][1]
    steps = _Once(advance, first.nbytes + second.nbytes)
    try:
        if _same_bytes(a, first, b, second, steps.advance):
            return ValueDiff(name, named, "identical", 0.0, 0.0, 0.0, 1.0, 0.0)
        reasons = [reason for side, tensor in ((a, first), (b, second)) if (reason := _unreadable(side, tensor))]
        if reasons:
            return ValueDiff(name, named, "unread", note=reasons[0])
        kinds = GGMLType(types[0][0]), GGMLType(types[1][0])
        sums = Sums(first.shape, bound(*kinds))
        ours, theirs = _Stream(a.values(first, steps.advance)), _Stream(b.values(second, steps.advance))
        for start in range(0, sums.count, CHUNK):
            count = min(CHUNK, sums.count - start)
            sums.add(ours.take(count), theirs.take(count))
    finally:
        steps.finish()
    return _judge(name, named, kinds, first.shape, sums)


def _type(side: Side, tensor: SideTensor) -> tuple[GGMLType | int, str]:
    """Number and name; a checkpoint's numbers are taken as F32."""
    return (tensor.kind, tensor.type) if side.file is not None else (GGMLType.F32, GGMLType.F32.name)


def _unreadable(side: Side, tensor: SideTensor) -> str | None:
    if side.file is None:
        return None
    assert isinstance(tensor.stored, GGUFTensor)  # noqa: S101 - a file's side has no others
    reason = unreadable(side.file, tensor.stored)
    return f"{reason} ({side.path.name})" if reason else None


def _same_bytes(a: Side, first: SideTensor, b: Side, second: SideTensor, advance: Advance) -> bool:
    """Whether both hold the same bytes of the same type, of files in the same byte order."""
    if a.file is None or b.file is None or first.kind != second.kind or a.file.byte_order != b.file.byte_order:
        return False
    ours, theirs = first.stored, second.stored
    assert isinstance(ours, GGUFTensor) and isinstance(theirs, GGUFTensor)  # noqa: S101 - files have no others
    if not a.file.holds(ours) or not b.file.holds(theirs) or ours.nbytes != theirs.nbytes:
        return False
    pairs = zip(raw(a.file, ours, advance), raw(b.file, theirs, advance), strict=True)
    return all(x == y for x, y in pairs) and _same_scales(a, ours, b, theirs)


def _same_scales(a: Side, ours: GGUFTensor, b: Side, theirs: GGUFTensor) -> bool:
    from dspark_convert.diff.reading import companion

    assert a.file is not None and b.file is not None  # noqa: S101 - _same_bytes saw to it
    scales = companion(a.file, ours), companion(b.file, theirs)
    if scales == (None, None):
        return True
    if scales[0] is None or scales[1] is None:
        return False
    return a.file.data(scales[0]) == b.file.data(scales[1])


def _judge(
    name: str, types: tuple[str, str], kinds: tuple[GGMLType, GGMLType], shape: tuple[int, ...], sums: Sums
) -> ValueDiff:
    expected = limit(*kinds)
    figures = (inf if sums.broken else sums.max_abs, sums.rms, sums.relative, sums.cosine, expected)
    if not sums.different and not sums.broken:
        return ValueDiff(name, types, "equal", *figures)
    if sums.broken:
        things = "1 place is" if sums.broken == 1 else f"{sums.broken:,} places are"
        note = f"{things} NaN or infinite on one side only, the first at {_place(sums, sums.first)}"
        return ValueDiff(name, types, "different", *figures, note)
    if bound(*kinds) is not None:
        note = "" if not sums.beyond else f"{_numbers(sums.beyond, sums)} beyond rounding{_where(sums, shape)}"
    elif not expected:
        note = f"{_numbers(sums.different, sums)} different{_where(sums, shape)}"
    else:
        note = _whole(sums, expected, shape)
    return ValueDiff(name, types, "different" if note else "rounding", *figures, note)


def _whole(sums: Sums, expected: float, shape: tuple[int, ...]) -> str:
    """Why rounding does not explain the distance of the whole, of a row, or the size; empty if it does."""
    rows, most = sums.row_distances(), row_limit(expected)
    furthest = int(rows.argmax())
    if sums.relative > expected:
        return f"further apart than rounding explains{_matrices(sums, shape, expected)}"
    if len(rows) > 1 and rows[furthest] > most:
        which = _matrices(sums, shape, expected)
        return f"row {furthest} is {rows[furthest]:.2g} of its size away, rounding explains {most:.2g}{which}"
    if abs(sums.factor - 1) > size_limit(expected):
        return f"B is A times {sums.factor:.3g}, which rounding is not"
    return ""


def _where(sums: Sums, shape: tuple[int, ...]) -> str:
    return _matrices(sums, shape, 0) or f", the largest difference at {_place(sums, sums.largest)}"


def _matrices(sums: Sums, shape: tuple[int, ...], most: float) -> str:
    """The matrices of a stack that are further away than ``most``, unless all or none are."""
    parts = shape[2] if len(shape) > 2 else 1
    wrong = sums.matrices(shape[1], most) if parts > 1 else []
    if not 0 < len(wrong) < parts:
        return ""
    return f", in {len(wrong)} of its {parts} matrices: {listed([str(i) for i in wrong], TOLD_MATRICES)}"


def _numbers(count: int, sums: Sums) -> str:
    if count == sums.count > 1:
        return f"all {count:,} numbers are"
    return f"{count:,} of {sums.count:,} numbers {'is' if count == 1 else 'are'}"


def _place(sums: Sums, index: int | None) -> str:
    return "" if index is None else f"row {index // sums.width}, column {index % sums.width}"


class _Stream:
    """Numbers of any blocks, taken in others."""

    def __init__(self, blocks: Iterator[NDArray[np.floating[Any]]]) -> None:
        self._blocks = blocks
        self._left: NDArray[np.floating[Any]] = np.empty(0, np.float32)

    def take(self, count: int) -> NDArray[np.floating[Any]]:
        """The next ``count``, valid until the next call."""
        if len(self._left) < count:
            # What a block is read into is used for the next one.
            parts, held = [self._left.copy()], len(self._left)
            while held < count:
                parts.append(next(self._blocks).copy())
                held += len(parts[-1])
            self._left = np.concatenate(parts)
        taken, self._left = self._left[:count], self._left[count:]
        return taken


class _Once:
    """Tells ``total`` bytes in all, however often they are read."""

    def __init__(self, advance: Advance, total: int) -> None:
        self._advance, self._left = advance, total

    def advance(self, count: int) -> None:
        told = min(count, self._left)
        self._left -= told
        self._advance(told)

    def finish(self) -> None:
        self.advance(self._left)
