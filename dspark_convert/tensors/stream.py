"""Reads units of a checkpoint's or a GGUF's tensors and turns them into bytes of GGUF tensors."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.files import SourceFiles
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.casts import INTEGER_DTYPES, SOURCE_DTYPES
from dspark_convert.tensors.losses import Losses
from dspark_convert.tensors.nonfinite import NonFinite, is_finite
from dspark_convert.tensors.pieces import FP4, FP8, NVFP4, Blocks, Integers, Piece, Plain, unpaired
from dspark_convert.tensors.quantize import quantize
from dspark_convert.tensors.remarks import Remarks
from dspark_convert.tensors.units import Unit, moved

#: what a reader's buffers are for
VALUES, SCALES, FACTOR = 0, 1, 2


class Reader:
    """The buffers of one thread, which grow to a unit and are used again for the next.

    ``check`` knows job number 0 as ``first``. ``library`` is what ``quantize`` takes. ``losses`` are measured if
    they are given.
    """

    def __init__(
        self,
        files: SourceFiles,
        check: NonFinite,
        first: int,
        remarks: Remarks,
        library: Path | None = None,
        losses: Losses | None = None,
    ) -> None:
        self._files = files
        self._check = check
        self._first = first
        self._remarks = remarks
        self._library = library
        self._losses = losses
        self._buffers = [np.empty(0, np.uint8) for _ in (VALUES, SCALES, FACTOR)]

    def read(self, number: int, job: TensorJob, unit: Unit) -> NDArray[np.uint8]:
        """The ``unit.nbytes`` bytes of ``unit`` of ``job``, valid until the next call.

        Values that are NaN, infinite or too large go into ``check``; the bytes are then worth nothing.
        Raises as SourceFiles.read does.
        """
        if not job.sources:
            # zero is all bits zero in every type
            given = job.literal[unit.offset : unit.offset + unit.nbytes] or bytes(unit.nbytes)
            return np.frombuffer(given, np.uint8)
        source = job.inputs[unit.source]
        piece = found = self._read(source, job, unit)
        self._remarks.look(number, unit.source, job, found)
        if job.transform == "unpair":
            rows = unit.count // prod(source.shape[1:])
            piece = unpaired(found, rows // job.head_dim, job.head_dim)
        out = piece.direct(job.type) if job.transform != "pad_columns" else None
        if out is None:
            out = quantize(_padded(piece.wide(), job, source), job.type, library=self._library)
        if not is_finite(out, job.type):
            self._check.report(self._first + number, job, unit, found.exact())
        elif self._losses and not moved(job, source):
            self._losses.measure(number, _padded(piece.wide(), job, source), out, job.type)
        return out

    def _read(self, source: Source, job: TensorJob, unit: Unit) -> Piece:
        ref = source.values
        if job.type is GGMLType.I64 and ref.dtype in INTEGER_DTYPES:
            dtype = INTEGER_DTYPES[ref.dtype]
            data = self._bytes(ref, unit.start * dtype.itemsize, unit.count * dtype.itemsize, VALUES)
            return Integers(data.view(dtype), unit.start if job.transform == "absolute_ids" else None)
        if source.encoding == "plain":
            dtype = SOURCE_DTYPES[ref.dtype]
            data = self._bytes(ref, unit.start * dtype.itemsize, unit.count * dtype.itemsize, VALUES)
            return Plain(data.view(dtype), ref.dtype)
        if source.encoding == "ggml":
            kind = GGMLType[ref.dtype]
            elements, size = BLOCKS[kind]
            position, nbytes = unit.start // elements * size, unit.count // elements * size
            return Blocks(self._bytes(ref, position, nbytes, VALUES), kind, self._factor(source))
        assert source.scales is not None  # noqa: S101 - require_agreement saw them
        width, per_row = ref.shape[-1], source.scales.shape[-1]
        first, rows = unit.start // source.shape[-1], unit.count // source.shape[-1]
        stored = self._bytes(ref, first * width, rows * width, VALUES).reshape(rows, width)
        above, inside = divmod(first, source.tile[0]) if source.encoding == "fp8" else (first, 0)
        scale_rows = -(-(inside + rows) // source.tile[0]) if source.encoding == "fp8" else rows
        scales = self._bytes(source.scales, above * per_row, scale_rows * per_row, SCALES).reshape(scale_rows, per_row)
        if source.encoding == "fp8":
            return FP8(stored, scales, source.tile, inside)
        return FP4(stored, scales) if source.encoding == "fp4" else NVFP4(stored, scales, self._factor(source))

    def _factor(self, source: Source) -> float:
        if source.tensor_scale is None:
            return 1.0
        return float(self._bytes(source.tensor_scale, 0, 4, FACTOR).view("<f4")[0])

    def _bytes(self, ref: TensorRef, position: int, nbytes: int, use: int) -> NDArray[np.uint8]:
        if self._buffers[use].size < nbytes:
            self._buffers[use] = np.empty(nbytes, np.uint8)
        view = self._buffers[use][:nbytes]
        self._files.read(ref, view.data, position)
        return view


def _padded(values: NDArray[np.float32], job: TensorJob, source: Source) -> NDArray[np.float32]:
    """``values`` (flat) as rows, with zero columns up to ne0 if there are some to add."""
    columns = source.shape[-1]
    rows = values.reshape(-1, columns)
    if columns == job.shape[0]:
        return rows
    wide = np.zeros((len(rows), job.shape[0]), np.float32)
    wide[:, :columns] = rows
    return wide
