"""Read a GGUF file: mapped, bounds-checked, nothing decoded before it is asked for.

The file may come from a stranger. What cannot be read at all raises InputError with the byte
where it went wrong; what can be read although llama.cpp would refuse it is a finding.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from dspark_convert.errors import InputError
from dspark_convert.findings import FewOfEach, Finding, error, warning
from dspark_convert.ggufio import cursor as limits
from dspark_convert.ggufio.cursor import Cursor
from dspark_convert.ggufio.layout import check_layout
from dspark_convert.ggufio.sniff import map_file, require_gguf
from dspark_convert.ggufio.texts import check_text
from dspark_convert.ggufio.types import (
    BLOCKS,
    GGUF_DEFAULT_ALIGNMENT,
    KV,
    MAX_DIMENSIONS,
    MAX_KEY_BYTES,
    MAX_TENSOR_NAME_BYTES,
    GGMLType,
    ValueType,
    padded,
    tensor_nbytes,
    type_name,
)
from dspark_convert.ggufio.values import (
    SCALAR_SIZES,
    Entry,
    Metadata,
    decode_text,
    find_odd_bool,
    read_type,
    skip_array,
)

ByteOrder = Literal["little", "big"]

READABLE_VERSIONS = (2, 3)


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """A tensor in a file.

    ``shape`` is in ggml order (ne0, the row length, first); ``type`` is a plain int if mainline
    ggml does not define that number; ``offset`` is the absolute byte where the data begins;
    ``nbytes`` is 0 if the type is unknown or the rows do not fill its blocks; ``part`` is the
    number of the file that holds it, of a split set; ``at`` the byte of the header that describes it.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLType | int
    offset: int
    nbytes: int
    part: int = 0
    at: int = 0

    @property
    def type_name(self) -> str:
        return type_name(self.type)


class GGUFFile:
    """An open GGUF file; ``size`` is that of all its parts. Close it, or use it in a ``with``; views
    into it die with it."""

    def __init__(self, path: Path, size: int | None = None) -> None:
        """``size``: of the whole file, of which ``path`` holds the first bytes only (else Incomplete is raised)."""
        self.path = path
        self.size = max(require_gguf(path), size or 0)
        self._others: tuple[GGUFFile, ...] = ()
        self.findings: tuple[Finding, ...] = ()
        self._map = map_file(path)
        self._view = memoryview(self._map)
        try:
            self._parse()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for part in self._others:
            part.close()
        # A caller may still hold a view; then the mapping lives until that view is gone.
        with suppress(BufferError):
            self._view.release()
            self._map.close()

    def kv(self, key: str) -> KV:
        """The metadata entry ``key`` with its encoded bytes; KeyError if it is absent."""
        return self.metadata.kv(key)

    def tensor(self, name: str) -> GGUFTensor | None:
        """The tensor of that name (the first, if a broken file has two), or None."""
        return self._by_name.get(name)

    def seen_as(self, metadata: Metadata, tensors: Iterable[GGUFTensor]) -> GGUFFile:
        """This open file with other words: ``metadata`` and ``tensors`` stand in for its own. Closing either
        closes both."""
        other = copy(self)
        other.metadata, other.tensors = metadata, tuple(tensors)
        other._by_name = {tensor.name: tensor for tensor in reversed(other.tensors)}
        return other

    def data(self, tensor: GGUFTensor) -> memoryview:
        """The encoded bytes of ``tensor``, mapped; InputError if they are not all in the file."""
        part = self._part(tensor)
        if not self.holds(tensor):
            raise InputError(
                f"{part.path}: tensor {tensor.name} ({tensor.type_name}, {list(tensor.shape)}) cannot be read:"
                f" its type is unknown or its data is not within the file's {len(part._view):,} bytes."
            )
        return part._view[tensor.offset : tensor.offset + tensor.nbytes]

    def holds(self, tensor: GGUFTensor) -> bool:
        """Whether all bytes of ``tensor`` are there."""
        return 0 < tensor.nbytes <= len(self._part(tensor)._view) - tensor.offset

    def path_of(self, tensor: GGUFTensor) -> Path:
        """The file that holds ``tensor``."""
        return self._part(tensor).path

    def _part(self, tensor: GGUFTensor) -> GGUFFile:
        return self._others[tensor.part - 1] if tensor.part else self

    def require_sound(self) -> None:
        """Raise InputError, with the findings, if llama.cpp would refuse this file as a GGUF."""
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if errors:
            raise InputError(f"{self.path} is damaged: {errors[0].message}", findings=errors)

    def _join(self, others: list[GGUFFile], found: list[Finding]) -> None:
        """Take in the other parts of the set that this is the first part of."""
        self._others = tuple(others)
        self.size += sum(part.size for part in others)
        self.findings = (*self.findings, *found)
        self.tensors += tuple(
            replace(tensor, part=number) for number, part in enumerate(others, 1) for tensor in part.tensors
        )
        for tensor in self.tensors:
            self._by_name.setdefault(tensor.name, tensor)

    def _parse(self) -> None:
        order = self._read_version()
        cursor = Cursor(self._view, str(self.path), order, 8, self.size)
        tensor_count = cursor.u64("the tensor count")
        entry_count = cursor.u64("the metadata count")
        cursor.require_room(entry_count, "metadata entries", limits.MAX_METADATA_ENTRIES, limits.MIN_ENTRY_BYTES)
        found = FewOfEach()
        entries = self._read_entries(cursor, entry_count, found)
        self.metadata = Metadata(self._view, str(self.path), order, entries)
        self.alignment = self._read_alignment(cursor)
        cursor.require_room(tensor_count, "tensors", limits.MAX_TENSORS, limits.MIN_TENSOR_BYTES)
        raw = [self._read_tensor(cursor, index, found) for index in range(tensor_count)]
        self.data_offset = padded(cursor.pos, self.alignment)
        self.tensors = tuple(self._place(tensor) for tensor in raw)
        self._by_name: dict[str, GGUFTensor] = {}
        for tensor in self.tensors:
            self._by_name.setdefault(tensor.name, tensor)
        found.extend(check_layout(self.tensors, self.data_offset, self.alignment, self.size))
        self.findings = tuple(found)

    def _read_version(self) -> str:
        if self.size < 8:
            raise InputError(f"{self.path} is cut short: a GGUF file has more than {self.size} bytes.")
        for order, name in (("<", "little"), (">", "big")):
            version = struct.unpack_from(f"{order}I", self._view, 4)[0]
            if version in READABLE_VERSIONS:
                self.version: int = version
                self.byte_order: ByteOrder = "little" if name == "little" else "big"
                return order
        version = struct.unpack_from("<I", self._view, 4)[0]
        if version == 1 << 24:  # the first version, big-endian
            version = 1
        hint = "too old, convert the model anew" if version == 1 else "newer than this tool, or damaged"
        raise InputError(f"{self.path}: GGUF version {version} cannot be read (2 and 3 can): it is {hint}.")

    def _read_entries(self, cursor: Cursor, count: int, found: FewOfEach) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for index in range(count):
            at = cursor.pos
            key_bytes = cursor.string(f"the key of metadata entry {index}", MAX_KEY_BYTES)
            if not key_bytes:
                raise cursor.fail(f"the key of metadata entry {index} is empty", at)
            key = decode_text(key_bytes)
            found.extend(check_text(key_bytes, key, "the key", at, name=True))
            entry = self._read_entry(cursor, key)
            if entry.type is ValueType.STRING:
                text = bytes(self._view[entry.start + 8 : entry.end])
                found.extend(check_text(text, key, "the text", entry.start + 8, name=False))
            if entry.array and entry.array.item_type is ValueType.ARRAY:
                message = f"an array of arrays at byte {entry.start}, which llama.cpp does not read."
                found.append(error("nested-array", key, message))
            odd = find_odd_bool(self._view, entry)
            if odd is not None:
                message = (
                    f"the byte at {odd} is {self._view[odd]}; a bool is 0 or 1, and llama.cpp takes this for true."
                )
                found.append(warning("odd-bool", key, message))
            if key in entries:
                found.append(error("duplicate-key", key, f"the key occurs again at byte {at}; the first one counts."))
            entries.setdefault(key, entry)
        return entries

    @staticmethod
    def _read_entry(cursor: Cursor, key: str) -> Entry:
        kind = read_type(cursor, key)
        start = cursor.pos
        if kind is ValueType.ARRAY:
            head = skip_array(cursor, key)
            return Entry(key, kind, start, cursor.pos, head)
        size = cursor.u64(f"the length of {key}") if kind is ValueType.STRING else SCALAR_SIZES[kind]
        cursor.take(size, f"the value of {key}")
        return Entry(key, kind, start, cursor.pos)

    def _read_alignment(self, cursor: Cursor) -> int:
        entry = self.metadata.entries.get("general.alignment")
        if entry is None:
            return GGUF_DEFAULT_ALIGNMENT
        value = self.metadata["general.alignment"]
        power_of_two = entry.type is ValueType.UINT32 and 0 < value <= limits.MAX_ALIGNMENT and not value & (value - 1)
        if not power_of_two:
            shown = f"of type {entry.type.name}" if entry.array or entry.type is ValueType.STRING else f"{value}"
            what = f"a UINT32 power of two up to {limits.MAX_ALIGNMENT:,}"
            raise cursor.fail(f"general.alignment is {shown}; it has to be {what}", entry.start)
        return int(value)

    def _read_tensor(self, cursor: Cursor, index: int, found: FewOfEach) -> GGUFTensor:
        at = cursor.pos
        name_bytes = cursor.string(f"the name of tensor {index}", MAX_KEY_BYTES)
        name = decode_text(name_bytes)
        if not 0 < len(name_bytes) <= MAX_TENSOR_NAME_BYTES:
            message = f"the name at byte {at} has {len(name_bytes):,} bytes; llama.cpp takes 1 to 63."
            found.append(error("tensor-name", name, message))
        found.extend(check_text(name_bytes, name, "the tensor name", at, name=True))
        dimensions = cursor.u32(f"the dimension count of tensor {name}")
        if dimensions > MAX_DIMENSIONS:
            raise cursor.fail(
                f"tensor {name} has {dimensions:,} dimensions; ggml has at most {MAX_DIMENSIONS}", cursor.pos - 4
            )
        shape = tuple(cursor.u64(f"the shape of tensor {name}") for _ in range(dimensions)) or (1,)
        number = cursor.u32(f"the type of tensor {name}")
        offset = cursor.u64(f"the offset of tensor {name}")
        kind = GGMLType(number) if number in BLOCKS else number
        return GGUFTensor(name, shape, kind, offset, 0, at=at)

    def _place(self, tensor: GGUFTensor) -> GGUFTensor:
        nbytes = 0
        if isinstance(tensor.type, GGMLType):
            with suppress(ValueError):
                nbytes = tensor_nbytes(tensor.type, tensor.shape)
        offset = self.data_offset + tensor.offset
        return GGUFTensor(tensor.name, tensor.shape, tensor.type, offset, nbytes, at=tensor.at)


def open_gguf(path: str | os.PathLike[str], sizes: Mapping[str, int] | None = None) -> GGUFFile:
    """Open a GGUF file (v2 or v3, either byte order).

    Given the first part of a split set, all parts that lie beside it are opened as one file.
    ``sizes``: file name -> bytes, of files of which only the first bytes, at least all of the header, lie here.
    Raises InputError if it is something else, another part of a set or its header is damaged,
    EnvironmentFault if it may not be read. What is odd but readable is in the result's ``findings``.
    """
    from dspark_convert.ggufio.parts import find_parts

    file = GGUFFile(Path(path), (sizes or {}).get(Path(path).name))
    try:
        others, found = find_parts(file, sizes)
    except BaseException:
        file.close()
        raise
    if others or found:
        file._join(others, found)
    return file
