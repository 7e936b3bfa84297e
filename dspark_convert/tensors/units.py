"""Cuts the tensor of a job into units of work, each of which can be done by itself, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from dspark_convert.errors import InputError
from dspark_convert.ggufio.types import BLOCKS, GGMLType, tensor_nbytes
from dspark_convert.jobs import Encoding, Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.casts import SOURCE_DTYPES, TARGET_TYPES
from dspark_convert.tensors.dequantise import READABLE
from dspark_convert.tensors.quantize import WRITABLE

#: Bytes of the widest form that a unit takes on its way: what is read, what is written, and the
#: float32 between them then fit a core's cache, and a write is as large as one should be.
UNIT_BYTES = 1 << 19

#: dtypes that can be cast, of each encoding
_DTYPES: dict[Encoding, frozenset[str]] = {
    "plain": frozenset(SOURCE_DTYPES),
    "fp8": frozenset({"F8_E4M3"}),
    "fp4": frozenset({"I8", "U8"}),
    "ggml": READABLE,
}


@dataclass(frozen=True, slots=True)
class Unit:
    """``count`` elements (row-major) of a job's source number ``source``, from ``start`` on, that
    give its tensor's ``nbytes`` bytes from ``offset`` on. Of "zeros" only the latter two mean anything."""

    source: int
    start: int
    count: int
    offset: int
    nbytes: int


def units(job: TensorJob, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
    """The units of ``job``, which passed ``require_agreement``, in the order of their bytes.

    No unit crosses from one source into the next. Where elements are cast one by one a unit is any
    number of whole blocks; elsewhere it is whole rows, at least one.
    """
    if not job.sources:
        for offset in range(0, job.nbytes, unit_bytes):
            yield Unit(0, 0, 0, offset, min(unit_bytes, job.nbytes - offset))
        return
    elements, size = BLOCKS[job.type]
    offset = 0
    for index, source in enumerate(job.sources):
        grain, grain_bytes = elements, size
        if by_rows(job, source):
            grain, grain_bytes = source.shape[-1], job.shape[0] // elements * size
        total = prod(source.shape)
        step = max(1, unit_bytes // (_width(job, source) * max(grain, 1))) * grain
        for start in range(0, total, max(step, 1)):
            count = min(step, total - start)
            nbytes = count // grain * grain_bytes
            yield Unit(index, start, count, offset, nbytes)
            offset += nbytes


def by_rows(job: TensorJob, source: Source) -> bool:
    """Whether ``source`` is taken in whole rows: its scales, the padding or the quantiser need them."""
    return source.encoding != "plain" or job.transform == "pad_columns" or job.type not in TARGET_TYPES


def _width(job: TensorJob, source: Source) -> int:
    """Bytes an element of the widest form that it takes on its way."""
    stored = SOURCE_DTYPES[source.values.dtype].itemsize if source.encoding == "plain" else 1
    elements, size = BLOCKS[job.type]
    if source.encoding == "ggml" and source.values.dtype == job.type.name:
        return size if elements == 1 else 1  # only moved
    if source.encoding == "fp4" and job.type is GGMLType.MXFP4 and job.transform == "copy":
        return stored  # codes and scales are only moved
    return max(stored, size if elements == 1 else 4)


def require_agreement(job: TensorJob) -> None:
    """Raise InputError unless shape, dtype and size of every source of ``job`` give what it says."""
    if not job.sources and job.transform != "zeros":
        raise InputError(f"tensor {job.name}: the transform {job.transform} needs a source tensor.")
    for source in job.sources:
        ref = source.values
        where = f"{ref.path}: tensor {ref.name}"
        moved = source.encoding == "ggml" and ref.dtype == job.type.name and job.transform == "copy"
        if not moved and (ref.dtype not in _DTYPES[source.encoding] or job.type not in WRITABLE):
            raise InputError(f"{where}: no cast from {ref.dtype} to {job.type.name} (for {job.name}).")
        shape = (len(job.sources), *source.shape) if len(job.sources) > 1 else source.shape
        shape = shape[::-1]
        fits = shape == job.shape
        if job.transform == "pad_columns":
            fits = shape[1:] == job.shape[1:] and 0 < shape[0] <= job.shape[0]
        if not fits:
            stacked = f", {len(job.sources)} times," if len(job.sources) > 1 else ""
            raise InputError(
                f"{where}: its shape {list(source.shape)}{stacked} does not give {list(job.shape)} (ggml order), "
                f"the shape of {job.name}, by {job.transform}."
            )
        if source.encoding == "ggml":
            _require_bytes(ref, tensor_nbytes(GGMLType[ref.dtype], ref.shape[::-1]))
            continue
        _require_bytes(ref, prod(ref.shape) * (SOURCE_DTYPES[ref.dtype].itemsize if source.encoding == "plain" else 1))
        if source.encoding != "plain":
            _require_scales(source)


def _require_scales(source: Source) -> None:
    values, scales = source.values, source.scales
    if scales is None or scales.dtype != "F8_E8M0":
        found = f"{scales.name} is {scales.dtype}" if scales else "there are none"
        raise InputError(f"{values.path}: tensor {values.name} needs scales of dtype F8_E8M0, but {found}.")
    *rows, columns = source.shape
    expected: tuple[int, ...] = (*rows, columns // 32)
    if source.encoding == "fp8":
        expected = tuple(-(-n // tile) for n, tile in zip(source.shape, source.tile, strict=False))
    if scales.shape != expected or (source.encoding == "fp8" and len(rows) != 1):
        raise InputError(
            f"{scales.path}: tensor {scales.name} has shape {list(scales.shape)}, but the scales of {values.name} "
            f"(shape {list(source.shape)}) need {list(expected)}."
        )
    _require_bytes(scales, prod(scales.shape))


def _require_bytes(ref: TensorRef, expected: int) -> None:
    if ref.nbytes != expected:
        raise InputError(
            f"{ref.path}: tensor {ref.name}: {ref.dtype} {list(ref.shape)} takes {expected} bytes, "
            f"but the header gives it {ref.nbytes}."
        )
