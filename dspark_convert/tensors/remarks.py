"""What is worth a warning about the values of a conversion, seen while they stream through."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.findings import Finding, warning
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import TensorJob
from dspark_convert.tensors import fp8
from dspark_convert.tensors.pieces import FP8, Piece


class Remarks:
    """About the sources of some jobs, each known by its number and the job's; any thread may report."""

    def __init__(self) -> None:
        self._valued: set[tuple[int, int]] = set()
        self._inexact: dict[tuple[int, int], int] = {}
        self._lock = threading.Lock()

    def look(self, number: int, index: int, job: TensorJob, piece: Piece) -> None:
        """Look at ``piece`` of source ``index`` of ``job``, which has ``number``."""
        key = number, index
        if key not in self._valued and _has_a_bit(piece.stored):
            self._valued.add(key)
        if job.type is GGMLType.BF16 and isinstance(piece, FP8):
            inexact = fp8.inexact_in_bf16(piece.stored, piece.scales, piece.tile, piece.first_row)
            if inexact:
                with self._lock:
                    self._inexact[key] = self._inexact.get(key, 0) + inexact

    def findings(self, jobs: Sequence[TensorJob]) -> list[Finding]:
        """In the order of ``jobs`` and their sources; a matrix of zeros is what an unfinished download leaves."""
        found = []
        for number, job in enumerate(jobs):
            for index, source in enumerate(job.inputs):
                ref = source.values
                if len(job.shape) > 1 and (number, index) not in self._valued:
                    message = f"{ref.path}: all values are zero."
                    found.append(warning("all-zero", ref.name, message, "the file is damaged: fetch it again"))
                if inexact := self._inexact.get((number, index)):
                    message = (
                        f"{ref.path}: {inexact} of {prod(source.shape)} values are too small for BF16 and were rounded."
                    )
                    found.append(warning("bf16-inexact", ref.name, message, "use --outtype f32"))
        return found


def _has_a_bit(stored: NDArray[Any]) -> bool:
    flat = stored.reshape(-1).view(np.uint8)
    return bool(flat[:64].any() or flat.any())
