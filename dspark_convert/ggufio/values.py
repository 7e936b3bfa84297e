"""Metadata values in a mapped GGUF: step over them at opening, decode them when asked for."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, overload

from dspark_convert.ggufio.cursor import MAX_ARRAY_NESTING, Cursor
from dspark_convert.ggufio.types import KV, SCALAR_FORMATS, ValueType

SCALAR_SIZES = {kind: struct.calcsize(f"<{letter}") for kind, letter in SCALAR_FORMATS.items()}

#: fewest bytes an array item can take: a string its length, an array its type and count
MIN_ITEM_BYTES = {**SCALAR_SIZES, ValueType.STRING: 8, ValueType.ARRAY: 12}


#: bytes of an array of bools that are looked at in one piece
_BOOL_STEP = 1 << 16


def decode_text(data: bytes | memoryview) -> str:
    """UTF-8 text; bytes that are none become ``\\xNN`` escapes."""
    return str(data, "utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class ArrayHead:
    """Where an array's items lie: ``start`` is the first item's byte, ``end`` one past the last."""

    item_type: ValueType
    count: int
    start: int
    end: int


def read_type(cursor: Cursor, what: str) -> ValueType:
    at = cursor.pos
    number = cursor.u32(f"the type of {what}")
    try:
        return ValueType(number)
    except ValueError:
        raise cursor.fail(f"{what} has value type {number}, which GGUF does not define (0 to 12)", at) from None


def skip_array(cursor: Cursor, what: str, depth: int = 1) -> ArrayHead:
    """Step over an array at the cursor; every item's place is checked, none is decoded."""
    if depth > MAX_ARRAY_NESTING:
        raise cursor.fail(f"{what} nests arrays more than {MAX_ARRAY_NESTING} deep")
    item_type = read_type(cursor, f"the items of {what}")
    count = cursor.u64(f"the item count of {what}")
    if count > cursor.left // MIN_ITEM_BYTES[item_type]:
        raise cursor.fail(
            f"{what} claims {count:,} items of type {item_type.name}, which {cursor.left:,} remaining bytes"
            " cannot hold: the file is cut short or damaged",
            cursor.pos - 8,
        )
    start = cursor.pos
    if item_type in (ValueType.STRING, ValueType.ARRAY):
        cursor.walk(count, what)
    if item_type is ValueType.STRING:
        _skip_strings(cursor, count, what)
    elif item_type is ValueType.ARRAY:
        for _ in range(count):
            skip_array(cursor, what, depth + 1)
    else:
        cursor.take(count * SCALAR_SIZES[item_type], what)
    return ArrayHead(item_type, count, start, cursor.pos)


def _skip_strings(cursor: Cursor, count: int, what: str) -> None:
    # The hot loop of opening a file: a vocabulary and its merges are some 300,000 strings.
    view, pos, last = cursor.view, cursor.pos, cursor.held - 8
    length_at = cursor.u64_struct.unpack_from
    for index in range(count):
        if pos > last:
            cursor.require(pos + 8)
            raise cursor.fail(f"{what} is cut short or damaged: item {index:,} of {count:,} is past the file's end")
        pos += 8 + length_at(view, pos)[0]
    cursor.require(pos)
    if pos > cursor.size:
        raise cursor.fail(f"{what} is cut short or damaged: its last item is past the file's end")
    cursor.pos = pos


class LazyArray(Sequence[Any]):
    """An array value that is decoded as it is read; valid while its file is open.

    Items are Python numbers, bools, strings, or LazyArrays of an array of arrays.
    """

    def __init__(self, view: memoryview, name: str, order: str, head: ArrayHead) -> None:
        self._view = view
        self._name = name
        self._order = order
        self._head = head
        self._offsets: array[int] | None = None
        self.item_type = head.item_type

    def __len__(self) -> int:
        return self._head.count

    def __iter__(self) -> Iterator[Any]:
        head = self._head
        if head.item_type is ValueType.STRING:
            for start, end in pairwise(self._bounds()):
                yield decode_text(self._view[start + 8 : end])
        elif head.item_type is ValueType.ARRAY:
            cursor = Cursor(self._view, self._name, self._order, head.start)
            for _ in range(head.count):
                yield LazyArray(self._view, self._name, self._order, skip_array(cursor, "a nested array"))
        else:
            letter = SCALAR_FORMATS[head.item_type]
            for (item,) in struct.iter_unpack(f"{self._order}{letter}", self._view[head.start : head.end]):
                yield item

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        positions = range(len(self))[index]
        if isinstance(positions, int):
            return self._item(positions)
        if positions.step > 0:
            return list(islice(self, positions.start, positions.stop, positions.step))
        return [self._item(position) for position in positions]

    def tolist(self) -> list[Any]:
        """All items; nested arrays as lists."""
        return [item.tolist() if isinstance(item, LazyArray) else item for item in self]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        if isinstance(other, LazyArray) and (self._order, self.item_type) == (other._order, other.item_type):
            return self._encoded() == other._encoded()  # without decoding some 100,000 tokens
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<LazyArray of {len(self)} {self.item_type.name}>"

    def encoded_strings(self) -> Iterator[bytes]:
        """The bytes of each item of an array of strings."""
        view = self._view
        for start, end in pairwise(self._bounds()):
            yield view[start + 8 : end].tobytes()

    def _encoded(self) -> memoryview:
        return self._view[self._head.start : self._head.end]

    def _bounds(self) -> array[int]:
        """Of strings: where the length of each is, and where the last one ends."""
        if self._offsets is None:
            view, pos = self._view, self._head.start
            length_at = struct.Struct(f"{self._order}Q").unpack_from
            self._offsets = array("Q", [pos])
            add = self._offsets.append
            for _ in range(self._head.count):  # plain, as there are some 100,000
                pos += 8 + length_at(view, pos)[0]
                add(pos)
        return self._offsets

    def _item(self, position: int) -> Any:
        head = self._head
        if head.item_type is ValueType.ARRAY:
            return next(item for index, item in enumerate(self) if index == position)
        if head.item_type is ValueType.STRING:
            bounds = self._bounds()
            return decode_text(self._view[bounds[position] + 8 : bounds[position + 1]])
        size = SCALAR_SIZES[head.item_type]
        letter = SCALAR_FORMATS[head.item_type]
        return struct.unpack_from(f"{self._order}{letter}", self._view, head.start + position * size)[0]


@dataclass(frozen=True, slots=True)
class Entry:
    """One metadata entry in place: its value's bytes are ``start`` to ``end`` of the file."""

    key: str
    type: ValueType
    start: int
    end: int
    array: ArrayHead | None = None


def find_odd_bool(view: memoryview, entry: Entry) -> int | None:
    """Where in ``view`` the first byte of a bool, or of an array of them, is neither 0 nor 1."""
    start, end = (entry.array.start, entry.array.end) if entry.array else (entry.start, entry.end)
    if (entry.array.item_type if entry.array else entry.type) is not ValueType.BOOL:
        return None
    for at in range(start, end, _BOOL_STEP):
        piece = bytes(view[at : min(at + _BOOL_STEP, end)])
        odd = piece.translate(None, b"\0\1")
        if odd:
            return at + piece.index(odd[:1])
    return None


class Metadata(Mapping[str, Any]):
    """Key -> value of a file, in file order; strings and arrays are decoded when asked for."""

    def __init__(self, view: memoryview, name: str, order: str, entries: dict[str, Entry]) -> None:
        self._view = view
        self._name = name
        self._order = order
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __getitem__(self, key: str) -> Any:
        entry = self.entries[key]
        if entry.array is not None:
            return LazyArray(self._view, self._name, self._order, entry.array)
        if entry.type is ValueType.STRING:
            return decode_text(self._view[entry.start + 8 : entry.end])
        letter = SCALAR_FORMATS[entry.type]
        return struct.unpack_from(f"{self._order}{letter}", self._view, entry.start)[0]

    def kv(self, key: str) -> KV:
        """The entry as a plan's record, with its encoded bytes to copy (KeyError if absent).

        A big-endian file's bytes cannot be copied: there ``raw`` is None and arrays are lists.
        """
        entry = self.entries[key]
        item_type = entry.array.item_type if entry.array else None
        value = self[key]
        if self._order == ">":
            return KV(key, entry.type, value.tolist() if entry.array else value, item_type)
        return KV(key, entry.type, value, item_type, bytes(self._view[entry.start : entry.end]))

    def held(self, key: str) -> KV:
        """As ``kv``, with a value that outlives the file."""
        kv = self.kv(key)
        return replace(kv, value=kv.value.tolist()) if isinstance(kv.value, LazyArray) else kv
