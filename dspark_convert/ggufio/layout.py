"""Do the tensors of a GGUF lie in the file as ggml wants them: known types, whole, in order?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dspark_convert.findings import Finding, error, info
from dspark_convert.ggufio.types import BLOCKS, GGMLType, padded

#: ggml keeps sizes in int64
MAX_ELEMENTS = 2**63 - 1


class Placed(Protocol):
    """What is looked at here of a tensor (see reader.GGUFTensor)."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type(self) -> GGMLType | int: ...
    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


def check_layout(tensors: Sequence[Placed], data_offset: int, alignment: int, size: int) -> list[Finding]:
    """Findings on a file of ``size`` bytes whose tensor data begins at ``data_offset``.

    All of severity error are things over which llama.cpp refuses the file.
    """
    found: list[Finding] = []
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            found.append(error("tensor-duplicate", tensor.name, "the file has two tensors of this name."))
        names.add(tensor.name)
        found += _check_shape(tensor)
    sizes_known = all(tensor.nbytes for tensor in tensors)
    if sizes_known:
        found += _check_places(tensors, data_offset, alignment)
    found += _check_end(tensors, alignment, size, sizes_known)
    return found


def _check_shape(tensor: Placed) -> list[Finding]:
    if not isinstance(tensor.type, GGMLType):
        message = (
            f"ggml type {tensor.type} is not defined by mainline llama.cpp;"
            " a fork's files use such numbers, and forks disagree on their meaning."
        )
        return [error("unknown-tensor-type", tensor.name, message, "quantise the model anew with mainline llama.cpp")]
    elements = 1
    for dimension in tensor.shape:
        elements *= dimension
    if elements == 0:
        return [error("zero-dimension", tensor.name, f"the shape {list(tensor.shape)} has no elements.")]
    if elements > MAX_ELEMENTS:
        return [error("tensor-too-large", tensor.name, f"the shape {list(tensor.shape)} overflows 64 bits.")]
    block = BLOCKS[tensor.type][0]
    if tensor.shape[0] % block:
        message = f"rows of {tensor.shape[0]} do not fill {tensor.type.name} blocks of {block}."
        return [error("broken-block", tensor.name, message)]
    return []


def _check_places(tensors: Sequence[Placed], data_offset: int, alignment: int) -> list[Finding]:
    """ggml wants each tensor where the one before ends, padded to the alignment."""
    found: list[Finding] = []
    expected = data_offset
    before = ""
    for tensor in tensors:
        relative = tensor.offset - data_offset
        if relative % alignment:
            message = f"the data offset {relative:,} is no multiple of the alignment {alignment}."
            found.append(error("tensor-misaligned", tensor.name, message))
        elif tensor.offset < expected:
            message = f"the data at byte {tensor.offset:,} overlaps that of {before}, or is out of order."
            found.append(error("tensor-overlap", tensor.name, message))
        elif tensor.offset > expected:
            message = f"{tensor.offset - expected:,} unused bytes lie before the data; llama.cpp refuses gaps."
            found.append(error("tensor-gap", tensor.name, message))
        expected = max(expected, tensor.offset + padded(tensor.nbytes, alignment))
        before = tensor.name
    return found


def _check_end(tensors: Sequence[Placed], alignment: int, size: int, sizes_known: bool) -> list[Finding]:
    cut = [tensor for tensor in tensors if tensor.offset + tensor.nbytes > size]
    end = max((tensor.offset + tensor.nbytes for tensor in tensors), default=size)
    if cut:
        more = f", and {len(cut) - 1} more tensors" if len(cut) > 1 else ""
        message = f"the file needs {end:,} bytes and has {size:,}: {cut[0].name} is cut{more}."
        return [error("truncated", cut[0].name, message, "download or convert the file again")]
    extra = size - padded(end, alignment)
    if extra > 0 and sizes_known:
        return [info("trailing-bytes", "file", f"{extra:,} bytes follow the last tensor.")]
    return []
