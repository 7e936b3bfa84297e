"""Checkpoints to break: a copy of the tiny pair, its safetensors read and written byte by byte.

Neither the package nor the safetensors library takes part, so that a file can also be wrong.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

BITS = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "I64": 64,
    "I32": 32,
    "I8": 8,
    "U8": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "BOOL": 8,
}


class _Absent(Enum):
    """One value with a name that is the same in every process: tests are called after it."""

    ABSENT = "absent"


#: as a value of ``Pair.config``: take the key away
ABSENT = _Absent.ABSENT


class Tensor(NamedTuple):
    """``shape`` as in PyTorch, slowest axis first."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


Tensors = dict[str, Tensor]


def zeros(dtype: str, *shape: int) -> Tensor:
    bits = BITS[dtype]
    for size in shape:
        bits *= size
    return Tensor(dtype, shape, bytes(bits // 8))


def read_tensors(path: Path) -> Tensors:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return tensors


def header_of(entries: Mapping[str, tuple[str, tuple[int, ...], int]]) -> bytes:
    """The length and JSON of a header; ``entries``: name -> dtype, shape, bytes, laid out in their order."""
    header: dict[str, Any] = {}
    position = 0
    for name, (dtype, shape, size) in entries.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    return header_bytes(json.dumps(header))


def header_bytes(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    header = header_of({name: (t.dtype, t.shape, len(t.data)) for name, t in tensors.items()})
    path.write_bytes(header + b"".join(t.data for t in tensors.values()))


class Pair:
    """A draft and its target in ``root``, to change at will, and a file that a run may not touch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.draft = root / "draft"
        self.target = root / "target"
        self.gguf = root / "target.gguf"
        self.shard = self.draft / "model.safetensors"

    def config(self, changes: Mapping[str, Any], which: str = "draft") -> None:
        """Set top-level keys of a config.json; ABSENT takes one away."""
        path = self.root / which / "config.json"
        config = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not ABSENT}))

    def tensors(self, change: Callable[[Tensors], object], which: str = "draft") -> None:
        """Let ``change`` edit the tensors of a model.safetensors in place."""
        path = self.root / which / "model.safetensors"
        tensors = read_tensors(path)
        change(tensors)
        write_tensors(path, tensors)

    def split(self, index: bool = True, shards: int = 2) -> dict[str, Any]:
        """Spread the draft over ``shards`` files; returns the index, written if ``index``."""
        tensors = read_tensors(self.shard)
        self.shard.unlink()
        names = list(tensors)
        weight_map: dict[str, str] = {}
        for number in range(shards):
            file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
            part = names[number::shards]
            write_tensors(self.draft / file, {name: tensors[name] for name in part})
            weight_map |= dict.fromkeys(part, file)
        document = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        if index:
            self.index(document)
        return document

    def index(self, document: Any) -> None:
        (self.draft / "model.safetensors.index.json").write_text(json.dumps(document))

    def swap(self) -> None:
        self.draft.rename(self.root / "aside")
        self.target.rename(self.draft)
        (self.root / "aside").rename(self.target)


def snapshot(root: Path) -> dict[str, str]:
    """Every path below ``root`` and what it holds."""
    return {str(path.relative_to(root)): _state(path) for path in sorted(root.rglob("*"))}


def _state(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    if path.is_dir():
        return "directory"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_pair(master: Path, root: Path) -> Pair:
    shutil.copytree(master, root, dirs_exist_ok=True)
    return Pair(root)
