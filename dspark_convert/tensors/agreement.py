"""Whether a job can be done as it stands: its sources, their sizes, and what its transform needs."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from dspark_convert.errors import InputError
from dspark_convert.ggufio.types import BLOCKS, GGMLType, tensor_nbytes
from dspark_convert.jobs import Encoding, Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.casts import INTEGER_DTYPES, SOURCE_DTYPES, STORED_DTYPES
from dspark_convert.tensors.dequantise import READABLE
from dspark_convert.tensors.quantize import WRITABLE
from dspark_convert.tensors.units import moved

#: dtypes that can be cast, of each encoding
_DTYPES: dict[Encoding, frozenset[str]] = {
    "plain": frozenset(SOURCE_DTYPES),
    "fp8": frozenset({"F8_E4M3"}),
    "fp4": frozenset({"I8", "U8"}),
    "nvfp4": frozenset({"U8"}),
    "ggml": READABLE,
}
#: dtype of the scales, and how many columns share one, of encodings in which it is so many of a row
_SCALES: dict[Encoding, tuple[str, int]] = {"fp8": ("F8_E8M0", 0), "fp4": ("F8_E8M0", 32), "nvfp4": ("F8_E4M3", 16)}


def require_agreement(job: TensorJob) -> None:
    """Raise InputError unless shape, dtype and size of every source of ``job`` give what it says."""
    if not job.sources:
        _require_bytes_of_its_own(job)
        return
    for problem in _problems_of_transform(job):
        raise InputError(f"tensor {job.name}: {problem}.")
    for source in job.inputs:
        ref = source.values
        where = f"{ref.path}: tensor {ref.name}"
        if not _can_become(job, source):
            raise InputError(f"{where}: no cast from {ref.dtype} to {job.type.name} (for {job.name}).")
        if source in job.sources:
            _require_shape(job, source, where)
        _require_sizes(source)


def _require_bytes_of_its_own(job: TensorJob) -> None:
    if job.transform not in ("zeros", "literal"):
        raise InputError(f"tensor {job.name}: the transform {job.transform} needs a source tensor.")
    if job.transform == "literal" and len(job.literal) != job.nbytes:
        raise InputError(
            f"tensor {job.name}: {job.type.name} {list(job.shape)} (ggml order) takes {job.nbytes} bytes, "
            f"but it is given {len(job.literal)}."
        )


def _problems_of_transform(job: TensorJob) -> Iterator[str]:
    shape = job.sources[0].shape
    if job.transform == "unpair":
        elements = BLOCKS[job.type][0] if len(shape) == 1 else 1
        if job.head_dim < 2 or job.head_dim % 2 or shape[0] % job.head_dim or job.head_dim % elements:
            yield f"{shape[0]} rows are no heads of {job.head_dim} rows each, whose pairs could be taken apart"
    if job.transform == "absolute_ids" and (len(shape) != 1 or len(job.sources) != 1 or job.type is not GGMLType.I64):
        yield f"offsets {list(shape)} of {len(job.sources)} tensors give no {job.type.name} vector of token ids"
    if job.transform == "patch_row":
        if len(shape) != 2 or len(job.sources) != 1 or not 0 <= job.row < shape[0]:
            yield f"there is no row {job.row} in {list(shape)} that could be replaced"
        elif job.patch is None or job.patch.shape != shape[1:]:
            found = "none" if job.patch is None else str(list(job.patch.shape))
            yield f"the row that replaces number {job.row} needs the shape {list(shape[1:])}, but it is {found}"


def _can_become(job: TensorJob, source: Source) -> bool:
    dtype = source.values.dtype
    if job.type is GGMLType.I64:
        numbers = dtype in INTEGER_DTYPES and source.encoding in ("plain", "ggml")
        return numbers and job.transform in ("copy", "absolute_ids")
    if source.encoding == "ggml" and job.transform == "unpair":
        return False
    if source.encoding == "ggml" and moved(job, source):
        return True
    return dtype in _DTYPES[source.encoding] and (job.type in WRITABLE or moved(job, source))


def _require_shape(job: TensorJob, source: Source, where: str) -> None:
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
    elements = BLOCKS[job.type][0]
    if job.shape[0] % elements:
        raise InputError(f"{where}: {job.type.name} needs rows that are a multiple of {elements}, not {job.shape[0]}.")


def _require_sizes(source: Source) -> None:
    ref = source.values
    _require_tensor_scale(source)
    if source.encoding == "ggml":
        _require_bytes(ref, tensor_nbytes(GGMLType[ref.dtype], source.shape[::-1]))
        return
    _require_bytes(ref, prod(ref.shape) * (STORED_DTYPES[ref.dtype].itemsize if source.encoding == "plain" else 1))
    if source.encoding != "plain":
        _require_scales(source)


def _require_scales(source: Source) -> None:
    values, scales = source.values, source.scales
    dtype, each = _SCALES[source.encoding]
    if scales is None or scales.dtype != dtype:
        found = f"{scales.name} is {scales.dtype}" if scales else "there are none"
        raise InputError(f"{values.path}: tensor {values.name} needs scales of dtype {dtype}, but {found}.")
    *rows, columns = source.shape
    if each and columns % each:
        raise InputError(
            f"{values.path}: tensor {values.name} has {columns} columns, expected a multiple of {each}, which share a "
            "scale."
        )
    if source.encoding == "fp8":
        expected = tuple(-(-n // tile) for n, tile in zip(source.shape, source.tile, strict=False))
    else:
        expected = (*rows, columns // each)
    if scales.shape != expected or (source.encoding == "fp8" and len(rows) != 1):
        raise InputError(
            f"{scales.path}: tensor {scales.name} has shape {list(scales.shape)}, but the scales of {values.name} "
            f"(shape {list(source.shape)}) need {list(expected)}."
        )
    _require_bytes(scales, prod(scales.shape))


def _require_tensor_scale(source: Source) -> None:
    whole = source.tensor_scale
    if whole is None:
        return
    if whole.dtype != "F32" or prod(whole.shape) != 1:
        raise InputError(
            f"{whole.path}: tensor {whole.name}, the scale of all of {source.values.name}, is {whole.dtype} "
            f"{list(whole.shape)}, expected one F32 number."
        )
    _require_bytes(whole, 4)


def _require_bytes(ref: TensorRef, expected: int) -> None:
    if ref.nbytes != expected:
        raise InputError(
            f"{ref.path}: tensor {ref.name}: {ref.dtype} {list(ref.shape)} takes {expected} bytes, "
            f"but the header gives it {ref.nbytes}."
        )
