"""What is added up over two tensors while their blocks pass: memory does not grow with them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.lint.wanted import trimmed
from dspark_convert.tensors.precision import SHORT_ROW

Numbers = NDArray[np.floating[Any]]
#: the largest difference that rounding can make of each number, from both sides' numbers
Bound = Callable[[Numbers, Numbers], Numbers]

#: rows that are told apart; of a tensor with more, neighbours count as one
MAX_ROWS = 1 << 20


class Sums:
    """Of two tensors of ``shape`` (ggml order) with numbers a and b.

    ``beyond`` counts the differences above ``bound``, ``broken`` the places where one of the two is
    NaN or infinite and the other is not the same, of which ``first`` is the flat index of the first;
    ``largest`` is that of the largest difference. Without ``bound`` every difference is beyond.
    """

    def __init__(self, shape: tuple[int, ...], bound: Bound | None) -> None:
        self._bound = bound
        self._at = 0
        self._along = self._a = self._b = self._apart = 0.0
        shape = trimmed(shape)
        self.count = prod(shape)
        self.width = shape[0]
        self._rows_each = -(-(self.count // self.width) // MAX_ROWS)
        rows = -(-self.count // (self.width * self._rows_each))
        self._row_apart, self._row_a = np.zeros(rows), np.zeros(rows)
        self._row_beyond = np.zeros(rows, np.bool_)
        self.max_abs = 0.0
        self.largest: int | None = None
        self.different = self.beyond = self.broken = 0
        self.first: int | None = None

    def add(self, a: Numbers, b: Numbers) -> None:
        """The next numbers of both, flat and equally many."""
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.all():
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            bad = ~finite & ~same
            if self.first is None and bad.any():
                self.first = self._at + int(bad.argmax())
            self.broken += int(np.count_nonzero(bad))
            x[~finite] = 0
            y[~finite] = 0
        apart = x - y
        distance = np.abs(apart)
        where = int(distance.argmax())
        if distance[where] > self.max_abs:
            self.max_abs, self.largest = float(distance[where]), self._at + where
        beyond = distance > (self._bound(x, y) if self._bound is not None else 0)
        self.different += int(np.count_nonzero(distance))
        self.beyond += int(np.count_nonzero(beyond))
        self._along += float(x @ y)
        self._b += float(y @ y)
        squares, sizes = apart * apart, x * x
        self._apart += float(squares.sum())
        self._a += float(sizes.sum())
        self._add_rows(squares, sizes, beyond)
        self._at += len(x)

    def _add_rows(self, squares: Numbers, sizes: Numbers, beyond: NDArray[np.bool_]) -> None:
        length = self.width * self._rows_each
        first, inside = divmod(self._at, length)
        starts = np.arange(-inside, len(squares), length, dtype=np.int64)
        starts[0] = 0
        rows = slice(first, first + len(starts))
        self._row_apart[rows] += np.add.reduceat(squares, starts)
        self._row_a[rows] += np.add.reduceat(sizes, starts)
        self._row_beyond[rows] |= np.logical_or.reduceat(beyond, starts)

    @property
    def rms(self) -> float:
        """Root mean square of the differences."""
        return float((self._apart / self.count) ** 0.5)

    @property
    def relative(self) -> float:
        """The same as a share of a's root mean square; infinite where that is 0 and b is not a."""
        if not self._a:
            return inf if self._apart else 0.0
        return float((self._apart / self._a) ** 0.5)

    @property
    def cosine(self) -> float:
        """Of the angle between both as vectors; 1 if both are 0, and 0 if one is."""
        if not self._a or not self._b:
            return 1.0 if self._a == self._b else 0.0
        return min(1.0, float(self._along / (self._a * self._b) ** 0.5))

    @property
    def factor(self) -> float:
        """The factor that brings a nearest to b, by least squares; 1 where a is 0."""
        return float(self._along / self._a) if self._a else 1.0

    def row_distances(self) -> Numbers:
        """The relative distance of each row [rows]; short ones are measured against SHORT_ROW of the usual length."""
        sizes = np.sqrt(self._row_a)
        least = max(SHORT_ROW * float(sizes.mean()), np.finfo(np.float64).tiny)
        distances: Numbers = np.sqrt(self._row_apart) / np.maximum(sizes, least)
        return distances

    def matrices(self, rows_each: int, most: float) -> list[int]:
        """Those of a stack, of ``rows_each`` rows each, that are further away than ``most``, or where that is 0 have a
        difference beyond the bound; empty if not known."""
        rows, uneven = divmod(rows_each, self._rows_each)
        if uneven:
            return []
        apart, sizes = (each.reshape(-1, rows).sum(axis=1) for each in (self._row_apart, self._row_a))
        wrong = apart > most**2 * sizes if most else self._row_beyond.reshape(-1, rows).any(axis=1)
        return [int(index) for index in np.flatnonzero(wrong)]
