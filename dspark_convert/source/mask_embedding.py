"""``mask_embedding.pt``: the embedding that a draft (MiMo's) has for its mask token, where its target has none.

Published as ``{"mask_token_id": int, "embedding": vector}``; copies hold the vector alone or as
``{"mask_embedding": vector}``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from dspark_convert.errors import InputError
from dspark_convert.source.jsonfile import is_special
from dspark_convert.source.safetensors_header import DTYPE_BITS, TensorRef
from dspark_convert.source.torch_archive import Entry, Unreadable, read_directory
from dspark_convert.source.torch_pickle import MAX_PICKLE_BYTES, Tensor, read_pickle
from dspark_convert.words import listed, shown

FILE_NAME = "mask_embedding.pt"
#: under which the vector is found
KEYS = ("embedding", "mask_embedding")
#: keys that are named of a dictionary without one
SHOWN_KEYS = 4


@dataclass(frozen=True)
class MaskEmbedding:
    """``token_id`` is None where the file does not say it; ``row`` is a vector, in place in the file."""

    token_id: int | None
    row: TensorRef


def read_mask_embedding(path: Path) -> MaskEmbedding:
    """What the file ``path`` says, of whose numbers none are read and of whose code none is run.

    Raises InputError.
    """
    try:
        status = path.stat()
        if is_special(status):
            raise Unreadable("it is no regular file")
        with path.open("rb") as file:
            return _read(path, file, status.st_size)
    except Unreadable as fault:
        raise InputError(
            f"{path} cannot be read: {fault}; expected the mask token's embedding as torch.save of PyTorch 1.6 or newer"
            " writes it."
        ) from None
    except OSError as fault:
        raise InputError(f"{path} cannot be read: {fault.strerror or fault}.") from None


def _read(path: Path, file: BinaryIO, size: int) -> MaskEmbedding:
    entries = read_directory(file, size)
    pickles = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise Unreadable("it is a zip file, but none of torch.save: there is no data.pkl in it")
    root = pickles[0].removesuffix("data.pkl")
    order = f"{root}byteorder"
    if order in entries and _content(file, entries, order) != b"little":
        raise Unreadable("its numbers are big-endian")
    token_id, tensor = _meaning(read_pickle(_content(file, entries, pickles[0])))
    return MaskEmbedding(token_id, _place(path, tensor, entries.get(f"{root}data/{tensor.storage.key}")))


def _content(file: BinaryIO, entries: dict[str, Entry], name: str) -> bytes:
    entry = entries[name]
    if entry.nbytes > MAX_PICKLE_BYTES:
        raise Unreadable(f"its {name.rpartition('/')[2]} has {entry.nbytes} bytes, too many for one vector")
    file.seek(entry.offset)
    return file.read(entry.nbytes)


def _meaning(held: Any) -> tuple[int | None, Tensor]:
    if isinstance(held, Tensor):
        return None, held
    if not isinstance(held, dict):
        raise Unreadable(f"it holds a {type(held).__name__}")
    found = [held[key] for key in KEYS if key in held]
    if len(found) != 1 or not isinstance(found[0], Tensor):
        keys = listed([shown(key) for key in held], SHOWN_KEYS) or "nothing"
        raise Unreadable(f"it needs one tensor named {' or '.join(KEYS)}, and holds {keys}")
    token_id = held.get("mask_token_id")
    if token_id is not None and type(token_id) is not int:
        raise Unreadable(f"its mask_token_id is no whole number but a {type(token_id).__name__}")
    return token_id, found[0]


def _place(path: Path, tensor: Tensor, entry: Entry | None) -> TensorRef:
    """The vector, which may be a part of a larger storage, such as a row of a table."""
    size, storage = DTYPE_BITS[tensor.storage.dtype] // 8, tensor.storage
    count = prod(tensor.shape)
    strides = [stride for length, stride in zip(tensor.shape, tensor.strides, strict=True) if length > 1]
    if len(strides) != 1 or strides[0] != 1:
        what = f"shape {shown(list(tensor.shape))} and strides {shown(list(tensor.strides))}"
        raise Unreadable(f"its tensor has {what}, which is no vector in one piece")
    if entry is None:
        raise Unreadable(f"its tensor's numbers (data/{shown(storage.key)}) are missing")
    if entry.nbytes != storage.count * size or tensor.first + count > storage.count:
        raise Unreadable(
            f"its tensor has {count} numbers from {tensor.first} on of {storage.count} ({storage.dtype}), "
            f"but there are {entry.nbytes} bytes"
        )
    return TensorRef(path.name, path, storage.dtype, (count,), entry.offset + tensor.first * size, count * size)
