"""Rules over the numbers themselves (--deep): every tensor is read once, in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dspark_convert.draft import Draft
from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import BLOCKS, F16_AT, GGMLType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: types that can be searched for NaN
CHECKED_TYPES = (GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.MXFP4, GGMLType.NVFP4, *F16_AT)
#: bytes read at a time, rounded down to whole blocks
CHUNK_BYTES = 2 << 20
#: a half with all bits of the exponent set is infinite or NaN
F16_EXPONENT = 0x7C00

DAMAGED = "the checkpoint or the file is damaged: get it again"


def check_values(file: GGUFFile, draft: Draft, advance: Callable[[int], None]) -> Iterator[Finding]:
    """``advance`` is told the bytes of each block that was read."""
    unchecked: set[str] = set()
    for tensor in file.tensors:
        if not file.holds(tensor):
            continue  # told as broken or truncated
        if isinstance(tensor.type, GGMLType) and tensor.type in CHECKED_TYPES and file.byte_order == "little":
            yield from _check_tensor(file, draft, tensor, tensor.type, advance)
        else:
            unchecked.add(tensor.type_name)
            advance(tensor.nbytes)
    unchecked.discard("I64")
    if unchecked:
        message = f"values of these types were not searched for NaN: {', '.join(sorted(unchecked))}."
        yield info("values-unchecked", "tensors", message)


def _check_tensor(
    file: GGUFFile, draft: Draft, tensor: GGUFTensor, kind: GGMLType, advance: Callable[[int], None]
) -> Iterator[Finding]:
    import numpy as np

    bad_byte: int | None = None
    zeros: list[int] = []
    parts = tensor.shape[2] if len(tensor.shape) > 2 else 1
    size = tensor.nbytes // parts
    step = CHUNK_BYTES - CHUNK_BYTES % BLOCKS[kind][1]
    buffer = np.empty(min(step, size), np.uint8)
    # Read, not mapped: a mapped file that is read through counts as this process' memory.
    with file.path_of(tensor).open("rb") as stream:
        stream.seek(tensor.offset)
        for part in range(parts):
            zero = True
            for start in range(0, size, step):
                chunk = buffer[: min(step, size - start)]
                if stream.readinto(chunk.data) != chunk.size:
                    raise InputError(f"{file.path}: tensor {tensor.name} ends early: the file has just been changed.")
                zero = zero and not chunk.any()
                if bad_byte is None and not all_finite(chunk, kind):
                    bad_byte = part * size + start
                advance(chunk.size)
            if zero:
                zeros.append(part)
    if bad_byte is not None:
        message = f"the {kind.name} data holds NaN or infinity (in the block at byte {bad_byte:,} of it)."
        yield error("non-finite-values", tensor.name, message, DAMAGED)
    if zeros and tensor.shape != (1,) and not (draft.markov_head_type == "zero" and tensor.name.startswith("markov_")):
        message = f"all {tensor.nbytes:,} bytes are zero."
        if len(zeros) < parts:
            message = f"{len(zeros):,} of its {parts:,} matrices are all zero, the first is number {zeros[0]}."
        yield warning("all-zero", tensor.name, message, DAMAGED)


def all_finite(chunk: NDArray[np.uint8], kind: GGMLType) -> bool:
    """Whether no value in ``chunk``, whole blocks of one of CHECKED_TYPES, is NaN or infinite."""
    if kind is GGMLType.NVFP4:
        return True  # ggml takes a scale that is NaN for zero
    if kind in F16_AT:
        blocks = chunk.reshape(-1, BLOCKS[kind][1])
        return all(((blocks[:, at + 1] & F16_EXPONENT >> 8) != F16_EXPONENT >> 8).all() for at in F16_AT[kind])
    from dspark_convert.tensors.nonfinite import is_finite

    return is_finite(chunk, kind)
