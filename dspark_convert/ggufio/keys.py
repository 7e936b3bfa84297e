"""Typed look-ups in a draft's metadata: a missing or mistyped key becomes a finding."""

from __future__ import annotations

from typing import Any

from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.types import ValueType
from dspark_convert.words import shown

#: lists in a draft have an item a tap or a layer; a longer one is damage and is not decoded
MAX_LIST_ITEMS = 4096

#: what llama.cpp's loader accepts for a list of layer ids
INTEGERS = (ValueType.INT32, ValueType.UINT32)


class Keys:
    """The keys ``<prefix>.*`` of a file, and ``findings`` about those that were asked for.

    llama.cpp refuses a key of another type than it expects, so here such a key counts as absent.
    """

    def __init__(self, file: GGUFFile, prefix: str) -> None:
        self.file = file
        self.prefix = prefix
        self.findings: list[Finding] = []

    def number(self, name: str, kind: ValueType, *, required: bool = False) -> Any:
        """The scalar ``<prefix>.<name>`` of type ``kind``, or None."""
        return self.full(f"{self.prefix}.{name}", kind, required=required)

    def size(self, name: str) -> int | None:
        """A required UINT32; an array that gives every layer the same value serves too."""
        value: int | None = self.uniform(name, ValueType.UINT32, INTEGERS)
        return value

    def uniform(self, name: str, kind: ValueType, items: tuple[ValueType, ...], *, required: bool = True) -> Any:
        """The scalar ``<prefix>.<name>`` of type ``kind``, or the one value that all layers have in an array."""
        key = f"{self.prefix}.{name}"
        entry = self.file.metadata.entries.get(key)
        if entry is None or entry.array is None or entry.array.item_type not in items:
            return self.full(key, kind, required=required)
        values = self.array(key, items)
        if values is None:
            return None
        layers = self.file.metadata.get(f"{self.prefix}.block_count")
        if len(set(values)) == 1 and len(values) == layers:
            return values[0]
        message = f"the list has {len(values)} items, {len(set(values))} of them different; one for all is expected."
        if len(values) != layers:
            message = f"the list has {len(values)} items for {shown(layers)} layers."
        self.findings.append(error("key-per-layer", key, message))
        return None

    def full(self, key: str, kind: ValueType, *, required: bool = False) -> Any:
        """The scalar ``key`` of type ``kind``, or None."""
        entry = self.file.metadata.entries.get(key)
        if entry is None:
            if required:
                self._missing(key)
            return None
        if entry.type is not kind:
            message = f"the value has type {entry.type.name}; llama.cpp takes {kind.name} only."
            self.findings.append(error("key-type", key, message, "convert the draft again"))
            return None
        return self.file.metadata[key]

    def array(self, key: str, kinds: tuple[ValueType, ...], *, required: bool = False) -> tuple[Any, ...] | None:
        """The items of array ``key``, of one of the item types ``kinds``, or None."""
        entry = self.file.metadata.entries.get(key)
        if entry is None:
            if required:
                self._missing(key)
            return None
        if entry.array is None or entry.array.item_type not in kinds:
            found = f"an array of {entry.array.item_type.name}" if entry.array else entry.type.name
            expected = " or ".join(kind.name for kind in kinds)
            message = f"the value is {found}; an array of {expected} is expected."
            self.findings.append(error("key-type", key, message, "convert the draft again"))
            return None
        if entry.array.count > MAX_LIST_ITEMS:
            message = f"the list has {entry.array.count:,} items; more than {MAX_LIST_ITEMS:,} make no sense."
            self.findings.append(error("list-too-long", key, message, "convert the draft again"))
            return None
        return tuple(self.file.metadata[key])

    def _missing(self, key: str) -> None:
        message = "the key is missing, and llama.cpp does not run the draft without it."
        self.findings.append(error("key-missing", key, message, "convert the draft again"))
