"""A position in a mapped GGUF header that can never run past its end, and the limits it keeps.

Every count and length is compared with the bytes that are left before anything is allocated, so
that a hostile header costs no more than a small multiple of its own size.
"""

from __future__ import annotations

import struct

from dspark_convert.errors import InputError

#: no published file nests arrays and llama.cpp refuses it; a few levels are read so as to say so
MAX_ARRAY_NESTING = 4
#: published files have under 100 entries; an entry of 13 bytes costs some 500 bytes of objects here
MAX_METADATA_ENTRIES = 16_384
#: the largest published models have some 3,000 tensors; same reason as above
MAX_TENSORS = 65_536
#: strings and inner arrays of all arrays together: each is stepped over by itself, which takes up to a microsecond;
#: the largest published vocabularies have 0.3 million tokens and 0.5 million merges
MAX_WALKED_ITEMS = 1 << 24
#: an entry is at least key length (8), key (0), type (4), value (1)
MIN_ENTRY_BYTES = 13
#: a tensor is at least name length (8), name (0), dimension count (4), type (4), offset (8)
MIN_TENSOR_BYTES = 24
#: larger alignments serve nothing and would let a tiny file claim huge padding
MAX_ALIGNMENT = 1 << 20


class Incomplete(InputError):
    """The header goes on behind the first bytes of a file, which are all that is here of it."""


class Cursor:
    """Reads integers and strings at ``pos`` of ``view``, a file of ``name`` in byte ``order``.

    ``size`` is that of the whole file where the view holds only its first bytes.
    """

    def __init__(self, view: memoryview, name: str, order: str, pos: int, size: int | None = None) -> None:
        self.view = view
        self.name = name
        self.order = order
        self.pos = pos
        self.held = len(view)
        self.size = self.held if size is None else size
        self._walked = 0
        self._u32 = struct.Struct(f"{order}I")
        self.u64_struct = struct.Struct(f"{order}Q")

    def fail(self, what: str, at: int | None = None) -> InputError:
        """The error to raise: ``what`` is wrong at byte ``at`` (default: here)."""
        where = self.pos if at is None else at
        return InputError(f"{self.name}: at byte {where}, {what}.")

    @property
    def left(self) -> int:
        return self.size - self.pos

    def take(self, count: int, what: str) -> int:
        """Step over ``count`` bytes of ``what``; returns where they begin."""
        if count > self.left:
            raise self.fail(
                f"{what} needs {count:,} bytes and the file has {self.left:,} left: it is cut short or damaged"
            )
        start = self.pos
        self.require(start + count)
        self.pos += count
        return start

    def require(self, end: int) -> None:
        """Raise Incomplete if the bytes up to ``end`` are in the file, but not here."""
        if self.held < end <= self.size:
            raise Incomplete(f"{self.name}: the header goes on behind the first {self.held:,} bytes.")

    def u32(self, what: str) -> int:
        value: int = self._u32.unpack_from(self.view, self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = self.u64_struct.unpack_from(self.view, self.take(8, what))[0]
        return value

    def require_room(self, count: int, what: str, most: int, smallest: int) -> None:
        """Refuse an announced ``count`` that is above ``most``, or cannot be there with ``smallest`` bytes each."""
        if count > self.left // smallest:
            raise self.fail(
                f"{count:,} {what} are announced, which {self.left:,} remaining bytes cannot hold:"
                " the file is cut short or damaged"
            )
        if count > most:
            raise self.fail(f"{count:,} {what} are announced; more than {most:,} are not read")

    def walk(self, count: int, what: str) -> None:
        """Account for ``count`` items of ``what`` that have to be stepped over one by one."""
        self._walked += count
        if self._walked > MAX_WALKED_ITEMS:
            raise self.fail(
                f"{what} brings the strings in all arrays to more than {MAX_WALKED_ITEMS:,}, which are not read"
            )

    def string(self, what: str, most: int) -> bytes:
        """The bytes of a length-prefixed string, of which ``most`` are read."""
        at = self.pos
        length = self.u64(f"the length of {what}")
        if most < length <= self.left:
            raise self.fail(f"{what} has {length:,} bytes; more than {most:,} are not read", at)
        start = self.take(length, what)
        return bytes(self.view[start : start + length])
