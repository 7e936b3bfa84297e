"""Hashes of a file and of its tensors while it is made."""

from __future__ import annotations

import hashlib
from typing import Protocol


class Digest(Protocol):
    """A hashlib object."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


class Digests:
    """The hash of the file, of each tensor, or both; fed in the order of the file."""

    def __init__(self, whole: Digest | None, each: bool, start: int) -> None:
        self._whole, self._each = whole, each
        self._position = start
        self._tensors: dict[int, Digest] = {}

    def update(self, number: int, offset: int, data: memoryview) -> None:
        """``data`` of tensor ``number`` at ``offset`` in the file; what is between it and the last is padding."""
        if self._whole is not None:
            self._whole.update(bytes(offset - self._position))
            self._whole.update(data)
        self._position = offset + len(data)
        if self._each:
            self._tensors.setdefault(number, hashlib.sha256()).update(data)

    def tensor(self, number: int) -> str:
        return self._tensors.get(number, hashlib.sha256()).hexdigest()
