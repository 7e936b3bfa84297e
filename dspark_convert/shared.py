"""Is the draft's copy of the target's embeddings or head one? A few stored rows tell.

A draft that borrows the target's tables computes something else if its own differ: another
target of the same shape, or tables that were trained on, the mask token's embedding above all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.findings import Finding, error, info
from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.jobs import Source
from dspark_convert.source.checkpoint import Rows, find_tensor
from dspark_convert.source.safetensors_header import TensorRef, read_bytes, read_rows
from dspark_convert.target import Target

if TYPE_CHECKING:
    from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor

#: tables that a draft may borrow from its target
EMBEDDINGS, HEAD = TABLES = ("token_embd.weight", "output.weight")

#: rows of the shared tensors that are compared with the target's
SAMPLED_ROWS = 64
#: how far a row of the target may be from the draft's, as a share of its length: rounding either to BF16
#: costs 0.004 a value; Q8_0 costs 0.02, four bits 0.1, and a row of another model is more than 1 away
ROUNDED, EIGHT_BITS, FEW_BITS = 0.01, 0.1, 0.6


@dataclass(frozen=True)
class _Table:
    """A stored matrix: ``shape`` is [rows, columns], ``row`` gives the bytes of one row."""

    name: str
    kind: str
    shape: tuple[int, ...]
    row: Callable[[int], bytes]


def judge_shared(
    ours: TensorRef,
    target: Target,
    *,
    head: bool,
    mask_token_id: int | None,
    included: bool,
    read: Rows | None = read_rows,
) -> list[Finding]:
    """Compare rows of ``ours``, the draft's embeddings or (``head``) its head, with the target's.

    Only where the target's weights lie at hand with the same shape and in a readable type. The
    embedding of the mask token is always among the rows. ``read``: as in ``Checkpoint``.
    """
    with _of_gguf(target, head) if target.is_gguf else _of_directory(target, head) as theirs:
        if theirs is None or theirs.shape != ours.shape or not _comparable(ours.dtype, theirs.kind):
            return []
        rows = ours.shape[0]
        sampled = {i * (rows - 1) // max(SAMPLED_ROWS - 1, 1) for i in range(SAMPLED_ROWS)}
        if not head and mask_token_id is not None and mask_token_id < rows:
            sampled.add(mask_token_id)
        try:
            table = _Table(ours.name, ours.dtype, ours.shape, _fetched(ours, sorted(sampled), read))
        except EnvironmentFault as fault:
            message = f"{ours.name} is not compared with the target's {theirs.name}: {fault}"
            return [info("shared-not-compared", ours.name, message)]
        different = [row for row in sorted(sampled) if not _same(table, theirs, row)]
    if not different:
        return []
    message = (
        f"{ours.name} is not the target's {theirs.name} "
        f"({len(different)} of {len(sampled)} sampled rows differ, the first is row {different[0]})."
    )
    if included:
        return [info("shared-differs", ours.name, message)]
    own = "write the draft's own: --shared-tensors include"
    if head and ours.name.endswith("embed_tokens.weight"):
        own = "save the draft's checkpoint with a lm_head.weight of its own"
    fix = f"give the target that the draft was trained for, or {own}"
    return [error("shared-differs", ours.name, message, fix)]


def _fetched(ref: TensorRef, rows: list[int], read: Rows | None) -> Callable[[int], bytes]:
    if read is None:
        raise EnvironmentFault("its values are on the hub, and are looked at when it is converted.")
    return dict(zip(rows, read(ref, rows), strict=True)).__getitem__


def _of_tensor(ref: TensorRef) -> _Table:
    size = ref.nbytes // ref.shape[0]
    return _Table(ref.name, ref.dtype, ref.shape, lambda row: read_bytes(ref, row * size, size))


def can_compare(ours: TensorRef, target: Target, *, head: bool) -> bool:
    """Whether ``judge_shared`` has something to compare ``ours`` with."""
    with _of_gguf(target, head) if target.is_gguf else _of_directory(target, head) as theirs:
        return theirs is not None and theirs.shape == ours.shape and _comparable(ours.dtype, theirs.kind)


def find_table(target: Target, *, head: bool) -> Source | None:
    """The target's embeddings, or (``head``) its head; None where they lie not at hand or cannot be read."""
    from dspark_convert.ggufio.reader import open_gguf
    from dspark_convert.tensors.casts import SOURCE_DTYPES

    if not target.is_gguf:
        ref = _find_ref(target, head)
        return Source(ref) if ref is not None and ref.dtype in SOURCE_DTYPES and len(ref.shape) == 2 else None
    if target.transforms:
        return None
    with open_gguf(target.path) as file:
        tensor = _tensor(file, target, head)
        if tensor is None or not isinstance(tensor.type, GGMLType) or not file.holds(tensor):
            return None
        place = file.path_of(tensor), tensor.type.name, tensor.shape[::-1], tensor.offset, tensor.nbytes
        ref = TensorRef(tensor.name, *place)
        return Source(ref, "plain" if ref.dtype in SOURCE_DTYPES else "ggml")


def _find_ref(target: Target, head: bool) -> TensorRef | None:
    names = ["model.embed_tokens.weight", "model.language_model.embed_tokens.weight", "embed.weight"]
    if head and not target.tied:
        names = ["lm_head.weight", "head.weight"]
    return next((ref for name in names if (ref := find_tensor(target.path, name))), None)


@contextmanager
def _of_directory(target: Target, head: bool) -> Iterator[_Table | None]:
    ref = _find_ref(target, head)
    yield _of_tensor(ref) if ref is not None and ref.shape[0] else None


@contextmanager
def _of_gguf(target: Target, head: bool) -> Iterator[_Table | None]:
    from dspark_convert.ggufio.reader import open_gguf

    if target.transforms:  # its rows are stored in another basis
        yield None
        return
    with open_gguf(target.path) as file:
        tensor = _tensor(file, target, head)
        if tensor is None or not isinstance(tensor.type, GGMLType):
            yield None
            return
        try:
            data = file.data(tensor)
        except InputError:  # cut short; its header is all that is needed
            yield None
            return
        block, block_bytes = BLOCKS[tensor.type]
        size = tensor.shape[0] // block * block_bytes
        shape = tuple(reversed(tensor.shape))
        yield _Table(tensor.name, tensor.type.name, shape, lambda row: bytes(data[row * size : (row + 1) * size]))
        data.release()


def _tensor(file: GGUFFile, target: Target, head: bool) -> GGUFTensor | None:
    tensor = file.tensor(HEAD if head and not target.tied else EMBEDDINGS)
    return tensor if file.byte_order == "little" else None


def _same(ours: _Table, theirs: _Table, row: int) -> bool:
    a, b = ours.row(row), theirs.row(row)
    if ours.kind == theirs.kind and (a == b or _allowed(ours.kind) == ROUNDED):
        return a == b
    import numpy as np

    from dspark_convert.tensors.dequantise import dequantise

    allowed = max(_allowed(ours.kind), _allowed(theirs.kind))
    with np.errstate(all="ignore"):  # rows may hold anything
        own, other = dequantise(a, ours.kind), dequantise(b, theirs.kind)
        return bool(np.linalg.norm(own - other) <= allowed * np.linalg.norm(own))


def _comparable(ours: str, theirs: str) -> bool:
    from dspark_convert.tensors.dequantise import READABLE

    return ours == theirs or (ours in READABLE and theirs in READABLE)


def _allowed(kind: str) -> float:
    from dspark_convert.tensors.casts import SOURCE_DTYPES

    return ROUNDED if kind in SOURCE_DTYPES else EIGHT_BITS if kind == "Q8_0" else FEW_BITS
