"""safetensors headers: which tensors a file holds and where, checked before anything is read.

Layout (safetensors' format document): 8 bytes little-endian header length, the header as JSON
(name -> dtype, shape, data_offsets relative to the end of the header), then the tensors' bytes
without gaps to the end of the file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error
from dspark_convert.source.jsonfile import disguised, is_special, parse_object
from dspark_convert.words import shown

#: the safetensors library's own limit
MAX_HEADER_BYTES = 100_000_000

#: bits an element of every dtype that the format defines
DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


@dataclass(frozen=True)
class TensorRef:
    """A tensor inside a safetensors file.

    ``dtype`` is safetensors' own name ("BF16", "F32", …); ``shape`` is row-major, slowest axis
    first, as in PyTorch; ``offset`` is the absolute byte position in the file.
    """

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def starts_header(head: bytes) -> bool:
    """Whether a file that begins with ``head`` can be a safetensors file: the JSON begins at once, by the format."""
    return head[8:9] == b"{"


def read_header(path: Path, size: int | None = None) -> tuple[list[TensorRef], list[Finding]]:
    """All tensors of the file ``path``, and what is wrong with the file as a whole.

    ``size``: of the whole file, where only its header lies there.
    The list is empty where the header itself cannot be trusted.
    """
    name = path.name
    try:
        status = path.stat()
        size = status.st_size if size is None else size
        if is_special(status):
            message = f"{name} is no regular file."
            return [], [error("shard-unreadable", name, message, "fetch the real file")]
        with path.open("rb") as file:
            head = file.read(512)
            if disguise := disguised(head):
                return [], [error("shard-unreadable", name, f"{name} is {disguise}.", "fetch the real file")]
            if size < 8:
                return [], [_cut(name, size, "a safetensors header needs 8")]
            length = int.from_bytes(head[:8], "little")
            if length > MAX_HEADER_BYTES:
                message = f"{name} is no safetensors file (its header would have {length} bytes)."
                return [], [error("shard-unreadable", name, message, "fetch it again")]
            if 8 + length > size:
                return [], [_cut(name, size, f"its header alone needs {8 + length}")]
            if not starts_header(head):
                message = f"{name} is no safetensors file (its header begins with {shown(head[8:9])}, expected b'{{')."
                return [], [error("shard-unreadable", name, message, "fetch it again")]
            file.seek(8)
            text = file.read(length)
    except OSError as e:
        message = f"{name} cannot be read: {e.strerror or e}."
        return [], [error("shard-unreadable", name, message, "check the path and the permissions")]
    try:
        entries = parse_object(text, f"the header of {name}")
    except InputError as e:
        return [], [error("shard-unreadable", name, str(e), "fetch it again")]
    entries.pop("__metadata__", None)

    refs: list[TensorRef] = []
    findings: list[Finding] = []
    for tensor, entry in entries.items():
        try:
            refs.append(_ref(path, tensor, entry, 8 + length))
        except ValueError as e:
            message = f"{name}: the header's entry for {tensor!r} is bad: {e}."
            findings.append(error("shard-header", tensor, message, "fetch the file again"))
    if not findings:
        findings = _layout(name, refs, 8 + length, size)
    return refs, findings


def _ref(path: Path, name: str, entry: Any, base: int) -> TensorRef:
    if not isinstance(entry, dict):
        raise ValueError("it is no object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise ValueError(f"dtype {shown(dtype)} is unknown")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"shape {shown(shape)} is no list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int for n in offsets):
        raise ValueError(f"data_offsets {shown(offsets)} are no pair of byte positions")
    begin, end = offsets
    if not 0 <= begin <= end:
        raise ValueError(f"data_offsets {shown(offsets)} run backwards")
    bits = prod(shape) * DTYPE_BITS[dtype]
    if bits % 8 or end - begin != bits // 8:
        raise ValueError(f"{dtype} {shown(shape)} needs {bits / 8:g} bytes, data_offsets give {end - begin}")
    return TensorRef(name, path, dtype, tuple(shape), base + begin, end - begin)


def _layout(name: str, refs: list[TensorRef], base: int, size: int) -> list[Finding]:
    position, previous = base, ""
    for ref in sorted(refs, key=lambda ref: (ref.offset, ref.nbytes)):
        if ref.offset != position:
            what = "overlaps" if ref.offset < position else "leaves a gap behind"
            message = (
                f"{name}: tensor {ref.name!r} at byte {ref.offset} {what} "
                f"{repr(previous) if previous else 'the header'}, which ends at byte {position}."
            )
            return [error("shard-header", ref.name, message, "fetch the file again")]
        position, previous = ref.offset + ref.nbytes, ref.name
    if size < position:
        return [_cut(name, size, f"its header promises {position}")]
    if size > position:
        message = f"{name} has {size - position} bytes behind its last tensor (file {size}, header {position})."
        return [error("shard-header", name, message, "fetch the file again")]
    return []


def _cut(name: str, size: int, needs: str) -> Finding:
    message = f"{name} is cut short: it has {size} bytes, {needs}."
    return error("shard-truncated", name, message, "fetch it again")


def read_rows(ref: TensorRef, rows: Sequence[int]) -> list[bytes]:
    """The bytes of ``rows`` of a matrix, in their order; raises as ``read_bytes`` does."""
    size = ref.nbytes // ref.shape[0]
    return [read_bytes(ref, row * size, size) for row in rows]


def read_bytes(ref: TensorRef, first: int = 0, count: int | None = None) -> bytes:
    """``count`` bytes of a tensor from byte ``first`` on (all of it by default).

    Raises InputError if the file became shorter or unreadable since its header was read.
    """
    count = ref.nbytes - first if count is None else count
    try:
        with ref.path.open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), count, ref.offset + first)
    except OSError as e:
        raise InputError(f"{ref.path.name} cannot be read: {e.strerror or e}.") from None
    if len(data) != count:
        raise InputError(f"{ref.path.name} changed while it was read: tensor {ref.name!r} is cut.")
    return data
