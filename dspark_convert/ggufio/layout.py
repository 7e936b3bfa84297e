"""Do the tensors of a GGUF lie in the file as ggml wants them: known types, whole, in order?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from dspark_convert.findings import Finding, error, info
from dspark_convert.ggufio.types import BLOCKS, REMOVED_TYPES, GGMLType, padded

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
    @property
    def at(self) -> int: ...


def check_layout(tensors: Sequence[Placed], data_offset: int, alignment: int, size: int) -> Iterator[Finding]:
    """Findings on a file of ``size`` bytes whose tensor data begins at ``data_offset``.

    All of severity error are things over which llama.cpp refuses the file.
    """
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            message = f"the file has two tensors of this name, the other one at byte {tensor.at}."
            yield error("tensor-duplicate", tensor.name, message)
        names.add(tensor.name)
        yield from _check_shape(tensor)
    sizes_known = all(tensor.nbytes for tensor in tensors)
    if sizes_known:
        yield from _check_places(tensors, data_offset, alignment)
    yield from _check_end(tensors, alignment, size, sizes_known)


def _check_shape(tensor: Placed) -> Iterator[Finding]:
    where = f"at byte {tensor.at}"
    if not isinstance(tensor.type, GGMLType):
        yield _unknown(tensor.type, tensor.name, where)
        return
    elements = 1
    for dimension in tensor.shape:
        elements *= dimension
    block = BLOCKS[tensor.type][0]
    if elements == 0:
        yield error("zero-dimension", tensor.name, f"the shape {list(tensor.shape)} {where} has no elements.")
    elif elements > MAX_ELEMENTS:
        yield error("tensor-too-large", tensor.name, f"the shape {list(tensor.shape)} {where} overflows 64 bits.")
    elif tensor.shape[0] % block:
        message = f"rows of {tensor.shape[0]} {where} do not fill {tensor.type.name} blocks of {block}."
        yield error("broken-block", tensor.name, message)


def _unknown(number: int, name: str, where: str) -> Finding:
    anew = "quantise the model anew with mainline llama.cpp"
    if number in REMOVED_TYPES:
        message = f"ggml type {number} ({REMOVED_TYPES[number]}) {where} was removed from llama.cpp."
        return error("removed-tensor-type", name, message, anew)
    message = (
        f"ggml type {number} {where} is not defined by mainline llama.cpp;"
        " a fork's files use such numbers, and forks disagree on their meaning."
    )
    return error("unknown-tensor-type", name, message, anew)


def _check_places(tensors: Sequence[Placed], data_offset: int, alignment: int) -> Iterator[Finding]:
    """ggml wants each tensor where the one before ends, padded to the alignment."""
    expected = data_offset
    before = ""
    for tensor in tensors:
        relative = tensor.offset - data_offset
        if relative % alignment:
            message = (
                f"the data offset {relative:,} (header byte {tensor.at}) is no multiple of the alignment {alignment}."
            )
            yield error("tensor-misaligned", tensor.name, message)
        elif tensor.offset < expected:
            message = f"the data at byte {tensor.offset:,} overlaps that of {before}, or is out of order."
            yield error("tensor-overlap", tensor.name, message)
        elif tensor.offset > expected:
            message = f"{tensor.offset - expected:,} unused bytes lie before the data; llama.cpp refuses gaps."
            yield error("tensor-gap", tensor.name, message)
        expected = max(expected, tensor.offset + padded(tensor.nbytes, alignment))
        before = tensor.name


def _check_end(tensors: Sequence[Placed], alignment: int, size: int, sizes_known: bool) -> Iterator[Finding]:
    cut = [tensor for tensor in tensors if tensor.offset + tensor.nbytes > size]
    end = max((tensor.offset + tensor.nbytes for tensor in tensors), default=size)
    extra = size - padded(end, alignment)
    if cut:
        more = f", and {len(cut) - 1} more tensors" if len(cut) > 1 else ""
        message = f"the file needs {end:,} bytes and has {size:,}: {cut[0].name} is cut{more}."
        yield error("truncated", cut[0].name, message, "download or convert the file again")
    elif extra > 0 and sizes_known:
        yield info("trailing-bytes", "file", f"{extra:,} bytes follow the last tensor.")
