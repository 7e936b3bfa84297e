"""Numbers that are stored as codes: which tensor holds the scales, and do the two fit each other?

DeepSeek's files name a matrix ``x.weight`` and its scales ``x.scale``. E4M3 codes have one E8M0
scale (a power of two) for each tile of rows and columns, FP4 (E2M1) codes one for 32 of a row.
modelopt's NVFP4 has bytes of two E2M1 codes in ``x.weight``, an E4M3 scale for 16 of a row in
``x.weight_scale`` and one F32 number for all of them in ``x.weight_scale_2``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error
from dspark_convert.jobs import Encoding, Source
from dspark_convert.source.safetensors_header import TensorRef, read_bytes
from dspark_convert.specs.load import Scales
from dspark_convert.specs.missing import FETCH
from dspark_convert.words import shown

#: dtype of codes -> how they are read
ENCODINGS: dict[str, Encoding] = {"F8_E4M3": "fp8", "I8": "fp4", "U8": "fp4"}
#: dtypes that hold two codes a byte
PACKED = ("I8", "U8")
NVFP4_DTYPE = "U8"
#: columns that one scale of NVFP4 covers
NVFP4_COLUMNS = 16
#: columns that one scale of FP4 covers (OCP Microscaling formats, MXFP4)
FP4_COLUMNS = 32
PUBLISHED = "convert the checkpoint as it was published"


def partner(scales: Scales | None, name: str) -> str | None:
    """The name of the scales that a weight of this name would have."""
    if scales is None or not name.endswith(scales.weight):
        return None
    return name.removesuffix(scales.weight) + scales.scale


def partners(scales: Scales | None, name: str, flat: Mapping[str, TensorRef]) -> list[str]:
    """The names of everything that belongs to the codes of a weight of this name, be they there or lost."""
    beside = partner(scales, name)
    if scales is None or beside is None or not scales.tensor_scale:
        return [] if beside is None else [beside]
    packed = name not in flat or flat[name].dtype == NVFP4_DTYPE
    return [beside, name.removesuffix(scales.weight) + scales.tensor_scale] if packed else []


def read_source(
    ref: TensorRef, scales: Scales | None, flat: Mapping[str, TensorRef], name: str, known: Mapping[str, Any]
) -> Source | Finding:
    """How the numbers of ``ref`` (flat name ``name``) are read, or what keeps them from being read.

    A dtype that holds no codes here is taken as it stands.
    """
    if scales is not None and scales.tensor_scale:
        if ref.dtype != NVFP4_DTYPE or partner(scales, name) is None:
            return Source(ref)
        held, whole = (flat.get(other) for other in partners(scales, name, flat))
        return _nvfp4(ref, held, whole)
    encoding = ENCODINGS.get(ref.dtype)
    beside = partner(scales, name)
    held = flat.get(beside) if beside else None
    if encoding is None or scales is None or beside is None:
        if held is not None:
            message = f"{ref.name} is {ref.dtype}, which needs no scale, but {held.name} is there."
            return error("tensor-scale", ref.name, message, "fetch both from one revision")
        return Source(ref)
    if held is None:
        message = f"{ref.name} is {ref.dtype} and means nothing without its scale: {beside} is missing."
        return error("tensor-scale-missing", ref.name, message, FETCH)
    if problem := _odd(ref, held, "F8_E8M0", ref.dtype):
        return problem
    if encoding == "fp4":
        return _unfit_in_rows(ref, held, FP4_COLUMNS) or Source(ref, "fp4", held)
    return _fp8(ref, held, known.get(scales.tile))


def _nvfp4(ref: TensorRef, held: TensorRef | None, whole: TensorRef | None) -> Source | Finding:
    if held is None or whole is None:
        message = f"{ref.name} is {ref.dtype}, two codes a byte, and means nothing without its scales."
        return error("tensor-scale-missing", ref.name, message, FETCH)
    if whole.dtype != "F32" or prod(whole.shape) != 1:
        message = f"{whole.name} is {whole.dtype} {shown(list(whole.shape))}, expected one F32 number."
        return error("tensor-scale", whole.name, message, PUBLISHED)
    problem = _odd(ref, held, "F8_E4M3", "NVFP4") or _unfit_in_rows(ref, held, NVFP4_COLUMNS)
    return problem or Source(ref, "nvfp4", held, tensor_scale=whole)


def judge_number(whole: TensorRef) -> list[Finding]:
    """The one number of an NVFP4 matrix, whose bytes lie at hand; what is not finite is told when it is written."""
    try:
        (value,) = struct.unpack("<f", read_bytes(whole))
    except InputError:  # the file is cut short, and there is a finding that says so
        return []
    if not value <= 0:
        return []
    return [error("tensor-scale", whole.name, f"{whole.name} is {value:g}, expected a positive number.", PUBLISHED)]


def _odd(ref: TensorRef, held: TensorRef, dtype: str, codes: str) -> Finding | None:
    """What is wrong with the type of the scales ``held``, or with codes that are no matrix."""
    if held.dtype != dtype:
        message = f"{held.name}, the scale of {ref.name}, is {held.dtype}, expected {dtype}."
        return error("tensor-scale", held.name, message, PUBLISHED)
    if len(ref.shape) != 2 or 0 in ref.shape:
        message = f"{ref.name} has shape {shown(list(ref.shape))}, but {codes} is read of matrices alone."
        return error("tensor-scale", ref.name, message, "fetch its file again")
    return None


def _unfit_in_rows(ref: TensorRef, held: TensorRef, each: int) -> Finding | None:
    """Scales that are not one for ``each`` columns, of which a byte of the codes holds two."""
    rows, columns = ref.shape[0], 2 * ref.shape[1]
    if columns % each == 0 and held.shape == (rows, columns // each):
        return None
    return _unfit(ref, held, f"[{rows}, {columns // each}], one for {each} of the {columns} columns")


def _fp8(ref: TensorRef, held: TensorRef, block: list[int] | None) -> Source | Finding:
    if len(held.shape) != 2 or 0 in held.shape:
        return _unfit(ref, held, "rows and columns of tiles")
    if block is None or len(block) != 2:  # a bad one has an error of its own
        if any(size % tiles for size, tiles in zip(ref.shape, held.shape, strict=True)):
            message = (
                f"the tiles of {ref.name} {list(ref.shape)} cannot be told from its scale {list(held.shape)}: "
                "config.json has no quantization_config.weight_block_size."
            )
            return error("tensor-scale", held.name, message, "take the config that was published with the checkpoint")
        rows, columns = (size // tiles for size, tiles in zip(ref.shape, held.shape, strict=True))
        return Source(ref, "fp8", held, (rows, columns))
    expected = tuple(-(-size // tile) for size, tile in zip(ref.shape, block, strict=True))
    if held.shape != expected:
        return _unfit(ref, held, f"{list(expected)} for tiles of {block} (quantization_config.weight_block_size)")
    return Source(ref, "fp8", held, (block[0], block[1]))


def _unfit(ref: TensorRef, held: TensorRef, expected: str) -> Finding:
    scaled = f"{ref.name} {shown(list(ref.shape))}"
    message = f"{held.name}, the scale of {scaled}, has shape {shown(list(held.shape))}, expected {expected}."
    return error("tensor-scale", held.name, message, "fetch both from one revision")
