"""The numbers of a tensor in blocks, out of a file or a checkpoint: memory is that of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.errors import InputError
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.jobs import TensorJob
from dspark_convert.tensors.dequantise import READABLE, dequantise

if TYPE_CHECKING:
    from dspark_convert.diff.sides import Advance, SideTensor

Numbers = NDArray[np.floating[Any]]

#: numbers that are taken at once, a multiple of every type's block: their arrays fit a core's cache
CHUNK = 1 << 16

#: types of whole numbers, which float64 holds exactly up to 2^53
INTEGERS = {GGMLType.I8: "<i1", GGMLType.I16: "<i2", GGMLType.I32: "<i4", GGMLType.I64: "<i8"}


def unreadable(file: GGUFFile, tensor: GGUFTensor) -> str | None:
    """Why the numbers of ``tensor`` cannot be read, as a clause; None if they can be."""
    if not isinstance(tensor.type, GGMLType):
        return f"ggml type {tensor.type} is not known"
    if not file.holds(tensor):
        return "its data is not all in the file"
    if file.byte_order == "big":
        return "big-endian numbers are not read"
    if tensor.type not in INTEGERS and tensor.type.name not in READABLE:
        return f"numbers of {tensor.type.name} are not read"
    scale = companion(file, tensor)
    if scale is not None and (scale.type is not GGMLType.F32 or scale.nbytes // 4 not in (1, _matrices(tensor))):
        return f"{scale.name} is neither one F32 scale nor one for each matrix"
    return None


def companion(file: GGUFFile, tensor: GGUFTensor) -> GGUFTensor | None:
    """The tensor ``<name>.scale`` that the numbers of ``<name>.weight`` are multiplied with, as NVFP4's are."""
    base = tensor.name.removesuffix(".weight")
    return file.tensor(f"{base}.scale") if base != tensor.name else None


def raw(file: GGUFFile, tensor: GGUFTensor, advance: Advance) -> Iterator[memoryview]:
    """The bytes of ``tensor`` in blocks of CHUNK numbers, each valid until the next."""
    elements, size = BLOCKS[GGMLType(tensor.type)]
    buffer = memoryview(bytearray(min(CHUNK // elements * size, tensor.nbytes)))
    # Read, not mapped: a mapped file that is read through counts as this process' memory.
    with file.path_of(tensor).open("rb", buffering=0) as stream:
        stream.seek(tensor.offset)
        left = tensor.nbytes
        while left:
            block = buffer[: min(len(buffer), left)]
            done = 0
            while done < len(block):  # one read may bring less
                got = stream.readinto(block[done:])
                if not got:
                    raise InputError(f"{file.path}: tensor {tensor.name} ends early: the file has just been changed.")
                done += got
            yield block
            left -= len(block)
            advance(len(block))


def from_file(file: GGUFFile, tensor: SideTensor, advance: Advance) -> Iterator[Numbers]:
    """Flat float32 (whole numbers: float64) of a tensor that is not ``unreadable``."""
    stored = tensor.stored
    assert isinstance(stored, GGUFTensor)  # noqa: S101 - a file's side has no others
    kind = GGMLType(stored.type)
    beside = companion(file, stored)
    scales = np.frombuffer(file.data(beside), "<f4") if beside is not None else None
    at = 0
    for block in raw(file, stored, advance):
        if kind in INTEGERS:
            yield np.frombuffer(block, INTEGERS[kind]).astype(np.float64)
            continue
        numbers = dequantise(block, kind.name)
        if scales is not None:
            matrix = np.prod(stored.shape[:2], dtype=np.int64) if len(scales) > 1 else np.iinfo(np.int64).max
            numbers = numbers * scales[np.arange(at, at + len(numbers)) // matrix]
        at += len(numbers)
        yield numbers


def from_job(tensor: SideTensor, advance: Advance) -> Iterator[Numbers]:
    """Flat float32 of what the job of ``tensor`` would write as F32 (whole numbers: float64 of what it writes)."""
    from dspark_convert.source.files import SourceFiles
    from dspark_convert.tensors.agreement import require_agreement
    from dspark_convert.tensors.nonfinite import NonFinite
    from dspark_convert.tensors.remarks import Remarks
    from dspark_convert.tensors.stream import Reader
    from dspark_convert.tensors.units import units

    job = tensor.stored
    assert isinstance(job, TensorJob)  # noqa: S101 - a checkpoint's side has no others
    if job.type not in INTEGERS:
        job = replace(job, type=GGMLType.F32)
    require_agreement(job)
    told = 0
    with SourceFiles() as files:
        reader = Reader(files, NonFinite(), 0, Remarks())
        for unit in units(job, 4 * CHUNK):
            data = reader.read(0, job, unit)
            yield data.view(INTEGERS[job.type]).astype(np.float64) if job.type in INTEGERS else data.view("<f4")
            done = tensor.nbytes * (unit.offset + unit.nbytes) // job.nbytes
            advance(done - told)
            told = done


def _matrices(tensor: GGUFTensor) -> int:
    return tensor.shape[2] if len(tensor.shape) > 2 else 1
