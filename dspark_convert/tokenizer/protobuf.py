"""Reads protobuf's wire format: numbered fields, each a varint, 4 or 8 bytes, or a run of bytes.

Facts from protobuf's documentation ("Encoding"). Nothing is read outside of the data, and nothing
is copied before its length is known to fit.
"""

from __future__ import annotations

from collections.abc import Iterator

#: wire types; groups (3 and 4) are long out of use
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_WIDTHS = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES = 10


class NotProtobuf(ValueError):
    """The message says what is wrong and at which byte."""


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field of a message: an int for VARINT, else the bytes.

    Raises NotProtobuf if the data is cut or is no message.
    """
    position = 0
    while position < len(data):
        start = position
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise NotProtobuf(f"a field without a number at byte {start}")
        if wire == VARINT:
            value, position = _varint(data, position)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, position = _varint(data, position)
        elif wire in _WIDTHS:
            length = _WIDTHS[wire]
        else:
            raise NotProtobuf(f"a field of the unknown kind {wire} at byte {start}")
        if length > len(data) - position:
            raise NotProtobuf(f"a field of {length} bytes at byte {start}, where {len(data) - position} are left")
        yield number, wire, data[position : position + length]
        position += length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """The number at ``position``, and where the next thing stands."""
    value = 0
    for count in range(_VARINT_BYTES):
        if position + count >= len(data):
            break
        byte = data[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    raise NotProtobuf(f"a number without an end at byte {position}")
