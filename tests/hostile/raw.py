"""A good little draft in pieces that can be bent byte by byte before they are put together."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from typing import Any

from tests.draft_file import TYPES, DraftFile
from tests.gguf_bytes import Builder

Change = Callable[["Raw"], object]


class Raw:
    """Encoded entries and tensor records, by name; what ``encode`` counts and pads can be overruled.

    All data are zeros, so that large tensors cost nothing on disk (see ``write``).
    """

    def __init__(self, file: DraftFile | None = None, order: str = "<", version: int = 3) -> None:
        file = file or DraftFile()
        self.build = Builder(order, version)
        self.entries = {key: self.build.kv(key, *value) for key, value in file.kv.items()}
        self.infos: dict[str, bytes] = {}
        self.data_bytes = 0
        self.alignment = 32
        self.entry_count: int | None = None
        self.tensor_count: int | None = None
        for name, (kind, shape) in file.tensors.items():
            self.infos[name] = self.build.tensor(name, shape, TYPES[kind][0], self.data_bytes)
            _, elements, size = TYPES[kind]
            self.data_bytes += -(-prod(shape) // elements * size // 32) * 32

    def put(self, key: str | bytes, kind: int, value: Any, item_kind: int | None = None) -> None:
        """Add an entry, or put another in its place."""
        name = key.decode(errors="replace") if isinstance(key, bytes) else key
        self.entries[name] = self.build.kv(key, kind, value, item_kind)

    def encoded(self, key: str | bytes, kind: int, value: bytes) -> None:
        """Add an entry whose value's bytes are given."""
        self.entries[str(key)] = self.build.string(key) + self.build.pack("I", kind) + value

    def append(self, name: str | bytes, shape: tuple[int, ...], kind: int = 0, offset: int | None = None) -> None:
        """Add a tensor; its data lie behind all others, and take 32 bytes."""
        at = self.data_bytes if offset is None else offset
        self.infos[f"{name!r} at {at}"] = self.build.tensor(name, shape, kind, at)
        self.data_bytes += 32

    def header(self) -> bytes:
        """Everything before the tensors' data."""
        counts = (
            len(self.infos) if self.tensor_count is None else self.tensor_count,
            len(self.entries) if self.entry_count is None else self.entry_count,
        )
        head = b"GGUF" + self.build.pack("IQQ", self.build.version, *counts)
        head += b"".join(self.entries.values()) + b"".join(self.infos.values())
        return head + bytes(-len(head) % self.alignment)

    def encode(self) -> bytes:
        return self.header() + bytes(self.data_bytes)


def draft(*changes: Change, order: str = "<", version: int = 3) -> bytes:
    """The good draft with each of ``changes`` made to it."""
    raw = Raw(order=order, version=version)
    for change in changes:
        change(raw)
    return raw.encode()


def put(key: str | bytes, kind: int, value: Any, item_kind: int | None = None) -> Change:
    return lambda raw: raw.put(key, kind, value, item_kind)


def encoded(key: str | bytes, kind: int, value: bytes) -> Change:
    return lambda raw: raw.encoded(key, kind, value)


def append(name: str | bytes, shape: tuple[int, ...], kind: int = 0, offset: int | None = None) -> Change:
    return lambda raw: raw.append(name, shape, kind, offset)


def counts(entries: int | None = None, tensors: int | None = None) -> Change:
    def change(raw: Raw) -> None:
        raw.entry_count, raw.tensor_count = entries, tensors

    return change


def record(name: str, *, shape: tuple[int, ...] | None = None, kind: int | None = None, shift: int = 0) -> Change:
    """Another shape or type for the tensor ``name``, or an offset further on; its data stay as they are."""

    def change(raw: Raw) -> None:
        start = 8 + len(name)
        (rank,) = struct.unpack_from("<I", raw.infos[name], start)
        *old, was, offset = struct.unpack_from(f"<{rank}QIQ", raw.infos[name], start + 4)
        raw.infos[name] = raw.build.tensor(
            name, tuple(old) if shape is None else shape, was if kind is None else kind, offset + shift
        )

    return change


def nested(depth: int) -> bytes:
    """The value of an array of arrays, ``depth`` of them in each other."""
    data = struct.pack("<IQ", 4, 0)
    return struct.pack("<IQ", 9, 1) * (depth - 1) + data
