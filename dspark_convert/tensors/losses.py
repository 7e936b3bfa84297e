"""What rounding cost each tensor of a conversion, measured while it streams through."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors.dequantise import READABLE, dequantise


@dataclass(frozen=True)
class Loss:
    """``relative_rms``: the root mean square of what a tensor's values were changed by, over that of the values;
    ``max_abs``: the largest change."""

    relative_rms: float
    max_abs: float

    def to_json(self) -> dict[str, float]:
        return {"relative_rms": self.relative_rms, "max_abs": self.max_abs}


class Losses:
    """Of the tensors of some jobs, each known by its number; any thread may report, in any order."""

    def __init__(self) -> None:
        self._changed: dict[int, list[float]] = {}
        self._held: dict[int, list[float]] = {}
        self._most: dict[int, float] = {}
        self._lock = threading.Lock()

    def measure(self, number: int, before: NDArray[np.float32], after: NDArray[np.uint8], kind: GGMLType) -> None:
        """Compare ``before``, all finite, with the bytes ``after`` that it was written as."""
        if kind.name not in READABLE:
            return
        wide: NDArray[Any] = before.reshape(-1).astype(np.float64)
        change = dequantise(after.data, kind.name) - wide
        changed, held = float(np.dot(change, change)), float(np.dot(wide, wide))
        most = float(np.abs(change).max(initial=0))
        with self._lock:
            self._changed.setdefault(number, []).append(changed)
            self._held.setdefault(number, []).append(held)
            self._most[number] = max(most, self._most.get(number, 0.0))

    def of(self, number: int) -> Loss | None:
        """Of job ``number``; None if none of it was measured. It does not depend on the order of its parts."""
        if number not in self._most:
            return None
        held = fsum(self._held[number])
        return Loss(sqrt(fsum(self._changed[number]) / held) if held else 0.0, self._most[number])
