"""Cuts the tensor of a job into units of work, each of which can be done by itself, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.tensors.casts import STORED_DTYPES, TARGET_TYPES

#: Bytes of the widest form that a unit takes on its way: what is read, what is written, and the
#: float32 between them then fit a core's cache, and a write is as large as one should be.
UNIT_BYTES = 1 << 19


@dataclass(frozen=True, slots=True)
class Unit:
    """``count`` elements (row-major) of number ``source`` of a job's inputs, from ``start`` on, that
    give its tensor's ``nbytes`` bytes from ``offset`` on. Without inputs only the latter two mean anything."""

    source: int
    start: int
    count: int
    offset: int
    nbytes: int


def units(job: TensorJob, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
    """The units of ``job``, which passed ``require_agreement``, in the order of their bytes.

    No unit crosses from one source into the next. Where elements are cast one by one a unit is any
    number of whole blocks; elsewhere it is whole rows (of "unpair" whole heads), at least one.
    """
    if not job.sources:
        for offset in range(0, job.nbytes, unit_bytes):
            yield Unit(0, 0, 0, offset, min(unit_bytes, job.nbytes - offset))
        return
    offset = 0
    for index, first, last in _spans(job):
        source = job.inputs[index]
        grain, grain_bytes = _grain(job, source)
        step = max(1, unit_bytes // (_width(job, source) * max(grain, 1))) * grain
        for start in range(first, last, max(step, 1)):
            count = min(step, last - start)
            nbytes = count // grain * grain_bytes
            yield Unit(index, start, count, offset, nbytes)
            offset += nbytes


def _spans(job: TensorJob) -> Iterator[tuple[int, int, int]]:
    """Which elements, first and behind the last, of which of the job's inputs follow each other in its tensor."""
    if job.transform == "patch_row":
        columns, total = job.shape[0], prod(job.shape)
        yield 0, 0, job.row * columns
        yield 1, 0, columns
        yield 0, (job.row + 1) * columns, total
        return
    for index, source in enumerate(job.sources):
        yield index, 0, prod(source.shape)


def _grain(job: TensorJob, source: Source) -> tuple[int, int]:
    """Elements of ``source`` that are not divided, and the bytes that they become."""
    elements, size = BLOCKS[job.type]
    if job.transform == "unpair":
        head = job.head_dim * prod(source.shape[1:])
        return head, head // elements * size
    if by_rows(job, source):
        return source.shape[-1], job.shape[0] // elements * size
    return elements, size


def by_rows(job: TensorJob, source: Source) -> bool:
    """Whether ``source`` is taken in whole rows: its scales, the transform or the quantiser need them."""
    return source.encoding != "plain" or job.transform in ("pad_columns", "patch_row") or job.type not in TARGET_TYPES


def moved(job: TensorJob, source: Source) -> bool:
    """Whether the codes or numbers of ``source`` become the tensor's as they are, only put in another order."""
    if job.transform == "pad_columns":
        return False
    if source.encoding == "fp4":
        return job.type is GGMLType.MXFP4
    if source.encoding == "nvfp4":
        return job.type is GGMLType.NVFP4
    return source.encoding in ("plain", "ggml") and source.values.dtype == job.type.name


def _width(job: TensorJob, source: Source) -> int:
    """Bytes an element of the widest form that it takes on its way."""
    elements, size = BLOCKS[job.type]
    stored = STORED_DTYPES[source.values.dtype].itemsize if source.encoding == "plain" else 1
    between = 1 if moved(job, source) else 4
    return max(stored, size if elements == 1 else between)
