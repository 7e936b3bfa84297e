"""Reads one tensor of a checkpoint piece by piece and yields the bytes of the GGUF tensor."""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO
from math import prod

import numpy as np

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.ggufio.types import BLOCKS
from dspark_convert.jobs import TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.casts import SOURCE_DTYPES, TARGET_TYPES, cast
from dspark_convert.tensors.nonfinite import NonFinite

#: Bytes read at a time: the block, its float32 and its output still fit a core's cache.
BUFFER_BYTES = 1 << 19


def blocks(job: TensorJob, check: NonFinite, *, buffer_bytes: int = BUFFER_BYTES) -> Iterator[memoryview]:
    """Yield ``job.nbytes`` bytes in order; each block is valid until the next one is asked for.

    Memory stays at a few times ``buffer_bytes`` (for pad_columns: at least one row), whatever the
    tensor's size. Values that are not finite go into ``check`` and are yielded as they are.
    Raises InputError if the source does not fit the job, or its file is shorter than its header
    says; EnvironmentFault if the file cannot be read.
    """
    if job.transform == "zeros":
        yield from _zeros(job.nbytes, buffer_bytes)
        return
    source = _agreed(job)
    dtype = SOURCE_DTYPES[source.dtype]
    columns, padded = (source.shape[-1], job.shape[0]) if job.transform == "pad_columns" else (0, 0)
    # A copy need not respect rows: whole quantisation blocks are enough.
    unit = columns or BLOCKS[job.type][0]
    step = max(1, buffer_bytes // (unit * dtype.itemsize)) * unit
    total = prod(source.shape)
    buffer = np.empty(min(step, total), dtype)
    try:
        with source.path.open("rb", buffering=0) as file:
            file.seek(source.offset)
            for start in range(0, total, step):
                values = buffer[: min(step, total - start)]
                _fill(file, values.data.cast("B"), source)
                wide = values
                if padded > columns:
                    wide = np.zeros((values.size // columns, padded), dtype)
                    wide[:, :columns] = values.reshape(-1, columns)
                out = cast(wide, source.dtype, job.type)
                check.look(job, source, values, out, start)
                yield out.data
    except FileNotFoundError:
        raise InputError(f"{source.path}: the file of tensor {source.name} has vanished.") from None
    except OSError as fault:
        raise EnvironmentFault(f"{source.path}: cannot read tensor {source.name}: {fault.strerror}.") from fault


def _agreed(job: TensorJob) -> TensorRef:
    """The source of ``job``, once its shape, dtype and size are known to give what the job says."""
    source = job.source
    if source is None:
        raise InputError(f"tensor {job.name}: the transform {job.transform} needs a source tensor.")
    where = f"{source.path}: tensor {source.name}"
    if source.dtype not in SOURCE_DTYPES or job.type not in TARGET_TYPES:
        raise InputError(f"{where}: no cast from {source.dtype} to {job.type.name} (for {job.name}).")
    shape = source.shape[::-1]
    fits = shape == job.shape
    if job.transform == "pad_columns":
        fits = shape[1:] == job.shape[1:] and 0 < shape[0] <= job.shape[0]
    if not fits:
        raise InputError(
            f"{where}: its shape {list(source.shape)} does not give {list(job.shape)} (ggml order), "
            f"the shape of {job.name}, by {job.transform}."
        )
    expected = prod(source.shape) * SOURCE_DTYPES[source.dtype].itemsize
    if source.nbytes != expected:
        raise InputError(
            f"{where}: {source.dtype} {list(source.shape)} takes {expected} bytes, "
            f"but the header gives it {source.nbytes}."
        )
    return source


def _fill(file: FileIO, view: memoryview, source: TensorRef) -> None:
    """Read until ``view`` is full; one read may bring less."""
    done = 0
    while done < len(view):
        got = file.readinto(view[done:])
        if not got:
            raise InputError(
                f"{source.path}: the file ends inside tensor {source.name}, which needs the bytes up to "
                f"{source.offset + source.nbytes}: it is truncated, or changed while it was read."
            )
        done += got


def _zeros(nbytes: int, buffer_bytes: int) -> Iterator[memoryview]:
    """In every type of TARGET_TYPES zero is all bits zero."""
    zeros = memoryview(bytes(min(nbytes, buffer_bytes)))
    for start in range(0, nbytes, buffer_bytes):
        yield zeros[: nbytes - start]
