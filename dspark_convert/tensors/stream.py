"""Reads units of a checkpoint's tensors and turns them into bytes of GGUF tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.files import SourceFiles
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.casts import SOURCE_DTYPES, Numbers, cast, to_f32
from dspark_convert.tensors.nonfinite import NonFinite, is_finite
from dspark_convert.tensors.units import UNIT_BYTES, Unit, require_agreement, units


class Reader:
    """The buffers of one thread, which grow to a unit and are used again for the next.

    ``valued`` takes (number of the job, number of its source) of every source in which a bit is set;
    ``check`` knows job number 0 as ``first``.
    """

    def __init__(self, files: SourceFiles, check: NonFinite, valued: set[tuple[int, int]], first: int) -> None:
        self._files = files
        self._check = check
        self._valued = valued
        self._first = first
        self._buffer = np.empty(0, np.uint8)

    def read(self, number: int, job: TensorJob, unit: Unit) -> NDArray[np.uint8]:
        """The ``unit.nbytes`` bytes of ``unit`` of ``job``, valid until the next call.

        Values that are NaN, infinite or too large go into ``check``; the bytes are then worth nothing.
        Raises as SourceFiles.read does.
        """
        if not job.sources:
            return np.zeros(unit.nbytes, np.uint8)  # zero is all bits zero in every type of TARGET_TYPES
        source = job.sources[unit.source]
        ref = source.values
        dtype = SOURCE_DTYPES[ref.dtype]
        values = self._values(ref, unit.start * dtype.itemsize, unit.count * dtype.itemsize).view(dtype)
        self._look_for_values(number, unit, values)
        out = cast(_padded(values, source, job), ref.dtype, job.type)
        if not is_finite(out, job.type):
            exact = values if ref.dtype == "F64" else to_f32(values, ref.dtype)
            self._check.report(self._first + number, job, unit, exact)
        return out

    def _values(self, ref: TensorRef, position: int, nbytes: int) -> NDArray[np.uint8]:
        if self._buffer.size < nbytes:
            self._buffer = np.empty(nbytes, np.uint8)
        view = self._buffer[:nbytes]
        self._files.read(ref, view.data, position)
        return view

    def _look_for_values(self, number: int, unit: Unit, values: NDArray[Any]) -> None:
        if (number, unit.source) not in self._valued and values.view(np.uint8).any():
            self._valued.add((number, unit.source))


def _padded(values: Numbers, source: Source, job: TensorJob) -> Numbers:
    """``values`` (whole rows) with zero columns up to ne0; as they are if there are none to add."""
    if job.transform != "pad_columns" or source.shape[-1] == job.shape[0]:
        return values
    columns = source.shape[-1]
    wide = np.zeros((values.size // columns, job.shape[0]), values.dtype)
    wide[:, :columns] = values.reshape(-1, columns)
    return wide


def blocks(job: TensorJob, check: NonFinite, *, buffer_bytes: int = UNIT_BYTES) -> Iterator[memoryview]:
    """Yield ``job.nbytes`` bytes in order; each block is valid until the next one is asked for."""
    require_agreement(job)
    with SourceFiles() as files:
        reader = Reader(files, check, set(), check.expect(1))
        for unit in units(job, buffer_bytes):
            yield reader.read(0, job, unit).data
