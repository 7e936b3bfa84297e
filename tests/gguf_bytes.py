"""GGUF files byte by byte, independent of the package and of gguf-py, so that broken ones can be made."""

from __future__ import annotations

import struct
from typing import Any

#: value type number -> struct letter
LETTERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Builder:
    """Encodes pieces of a GGUF in one byte order."""

    def __init__(self, order: str = "<", version: int = 3) -> None:
        self.order = order
        self.version = version

    def pack(self, letter: str, *values: Any) -> bytes:
        return struct.pack(self.order + letter, *values)

    def string(self, text: str | bytes, length: int | None = None) -> bytes:
        data = text.encode() if isinstance(text, str) else text
        return self.pack("Q", len(data) if length is None else length) + data

    def value(self, kind: int, value: Any, item_kind: int | None = None) -> bytes:
        if kind == STRING:
            return self.string(value)
        if kind == ARRAY:
            assert item_kind is not None
            return self.array(item_kind, value)
        return self.pack(LETTERS[kind], value)

    def array(self, item_kind: int, items: list[Any], count: int | None = None) -> bytes:
        head = self.pack("IQ", item_kind, len(items) if count is None else count)
        return head + b"".join(self.value(item_kind, item) for item in items)

    def kv(self, key: str | bytes, kind: int, value: Any, item_kind: int | None = None) -> bytes:
        return self.string(key) + self.pack("I", kind) + self.value(kind, value, item_kind)

    def tensor(self, name: str | bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
        return (
            self.string(name)
            + self.pack("I", len(shape))
            + self.pack("Q" * len(shape), *shape)
            + self.pack("IQ", kind, offset)
        )

    def file(
        self,
        kvs: list[bytes],
        tensors: list[bytes] | None = None,
        data: bytes = b"",
        *,
        kv_count: int | None = None,
        tensor_count: int | None = None,
        alignment: int = 32,
    ) -> bytes:
        infos = tensors or []
        head = b"GGUF" + self.pack(
            "IQQ",
            self.version,
            len(infos) if tensor_count is None else tensor_count,
            len(kvs) if kv_count is None else kv_count,
        )
        head += b"".join(kvs) + b"".join(infos)
        return head + bytes(-len(head) % alignment) + data if infos else head
