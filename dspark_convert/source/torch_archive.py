"""The zip file that torch.save writes: where each of its entries lies. Nothing is unpacked.

PyTorch stores its entries without compression, ``data.pkl`` and one for each storage, so that they can be read in
place. The directory stands at the end, as the zip format (PKWARE's APPNOTE) has it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from dspark_convert.words import shown

#: what is here for one vector has seven entries
MAX_ENTRIES = 64
MAX_DIRECTORY_BYTES = 1 << 16
#: a file of torch.save before PyTorch 1.6, which is pickles one behind the other, begins with this number as one
LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."

END = struct.Struct("<4s4H2IH")
ENTRY = struct.Struct("<4s6H3I5H2I")
LOCAL = struct.Struct("<4s5H3I2H")
ENCRYPTED, STORED = 1, 0


class Unreadable(ValueError):
    """The message is a clause that says why."""


@dataclass(frozen=True)
class Entry:
    """``offset`` is the absolute position of its ``nbytes`` bytes."""

    offset: int
    nbytes: int


def read_directory(file: BinaryIO, size: int) -> dict[str, Entry]:
    """The entries by name, of a file of ``size`` bytes; raises Unreadable, or OSError."""
    if file.read(len(LEGACY_START)) == LEGACY_START:
        raise Unreadable("it is of the format that PyTorch had before 1.6")
    count, start, length = _end(file, size)
    file.seek(start)
    directory = file.read(length)
    entries: dict[str, Entry] = {}
    for name, entry in _entries(file, directory, count, start):
        if name in entries:
            raise Unreadable(f"its zip directory names {shown(name)} twice")
        entries[name] = entry
    return entries


def _end(file: BinaryIO, size: int) -> tuple[int, int, int]:
    """How many entries the directory has, where it begins, and its bytes."""
    at = size - END.size
    file.seek(max(at, 0))
    record = file.read(END.size)
    if at < 0 or not record.startswith(b"PK\5\6"):
        raise Unreadable("it does not end as a zip file does: it is another file, or cut short")
    _, _, _, _, count, length, start, _ = END.unpack(record)
    if count > MAX_ENTRIES or length > MAX_DIRECTORY_BYTES:
        raise Unreadable(f"its zip directory has {count} entries in {length} bytes, too many for one vector")
    if start + length > at:
        raise Unreadable("its zip directory lies behind the end of the file")
    return count, start, length


def _entries(file: BinaryIO, directory: bytes, count: int, end: int) -> Iterator[tuple[str, Entry]]:
    at = 0
    for _ in range(count):
        if directory[at : at + 4] != b"PK\1\2" or len(directory) - at < ENTRY.size:
            raise Unreadable("its zip directory is damaged")
        _, _, _, flags, method, _, _, _, packed, nbytes, named, extra, comment, *_, local = ENTRY.unpack_from(
            directory, at
        )
        raw = directory[at + ENTRY.size : at + ENTRY.size + named]
        at += ENTRY.size + named + extra + comment
        name = raw.decode("utf-8", "backslashreplace")
        if flags & ENCRYPTED:
            raise Unreadable(f"its entry {shown(name)} is encrypted")
        if method != STORED or packed != nbytes:
            raise Unreadable(f"its entry {shown(name)} is compressed, which torch.save never does")
        yield name, Entry(_data_of(file, name, raw, local, nbytes, end), nbytes)


def _data_of(file: BinaryIO, name: str, raw: bytes, local: int, nbytes: int, end: int) -> int:
    """Where the bytes behind the header at ``local`` begin; all that has to lie before ``end``."""
    file.seek(local)
    header = file.read(LOCAL.size + len(raw))
    if not header.startswith(b"PK\3\4") or header[LOCAL.size :] != raw:
        raise Unreadable(f"its entry {shown(name)} is not where the zip directory says")
    extra: int = LOCAL.unpack_from(header)[-1]
    offset = local + LOCAL.size + len(raw) + extra
    if offset + nbytes > end:
        raise Unreadable(f"its entry {shown(name)} is longer than the file")
    return offset
