"""Rules over the numbers themselves (--deep): every tensor is read once, in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dspark_convert.draft import Draft
from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType

#: types whose blocks can be searched for NaN; each block size divides CHUNK_BYTES once rounded down
CHECKED_TYPES = (GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0)
#: bytes read at a time: a multiple of every checked type's block (4, 2, 2, 34)
CHUNK_BYTES = 68 * 32_768


def check_values(file: GGUFFile, draft: Draft, advance: Callable[[int], None]) -> Iterator[Finding]:
    """``advance`` is told the bytes of each block that was read."""
    unchecked: set[str] = set()
    for tensor in file.tensors:
        if not tensor.nbytes or tensor.offset + tensor.nbytes > file.size:
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

    from dspark_convert.tensors.nonfinite import is_finite

    bad_bytes = 0
    zero = True
    buffer = np.empty(min(CHUNK_BYTES, tensor.nbytes), np.uint8)
    # Read, not mapped: a mapped file that is read through counts as this process' memory.
    with file.path.open("rb") as stream:
        stream.seek(tensor.offset)
        for start in range(0, tensor.nbytes, CHUNK_BYTES):
            chunk = buffer[: min(CHUNK_BYTES, tensor.nbytes - start)]
            if stream.readinto(chunk.data) != chunk.size:
                raise InputError(f"{file.path}: tensor {tensor.name} ends early: the file has just been changed.")
            zero = zero and not chunk.any()
            if not bad_bytes and not is_finite(chunk, kind):
                bad_bytes = start + 1
            advance(chunk.size)
    if bad_bytes:
        message = f"the {kind.name} data holds NaN or infinity (in the block at byte {bad_bytes - 1:,} of it)."
        yield error("non-finite-values", tensor.name, message, "the checkpoint or the file is damaged: get it again")
    if zero and tensor.shape != (1,) and not (draft.markov_head_type == "zero" and tensor.name.startswith("markov_")):
        message = f"all {tensor.nbytes:,} bytes are zero."
        yield warning("all-zero", tensor.name, message, "the checkpoint or the file is damaged: get it again")
