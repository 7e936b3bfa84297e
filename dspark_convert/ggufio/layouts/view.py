"""A file of any layout, seen in mainline's words: its keys and names, and taps that are layer inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from dspark_convert.findings import Finding
from dspark_convert.ggufio.keys import INTEGERS, MAX_LIST_ITEMS
from dspark_convert.ggufio.layouts.names import MAINLINE, OWN, dialect_key, mainline_name
from dspark_convert.ggufio.layouts.stage_sizes import stage_keys
from dspark_convert.ggufio.layouts.table import Layout
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.types import KV, ValueType, array, string
from dspark_convert.ggufio.values import ArrayHead, Entry, Metadata

TAPS = f"{MAINLINE}target_layers"
MASK = "tokenizer.ggml.mask_token_id"

#: our own keys that are the runtime's too where the architecture is ``dspark``
ALSO_RUNTIME = ("dspark.block_size", "dspark.target_layers", "dspark.sample_from_anchor", "dspark.has_confidence_head")


class Translated(Metadata):
    """Metadata under other keys: ``places`` says where each one stands, ``made`` holds values that stand nowhere."""

    def __init__(self, source: Metadata, places: dict[str, str], made: dict[str, KV]) -> None:
        entries = {key: replace(source.entries[place], key=key) for key, place in places.items()}
        entries |= {key: _entry(kv) for key, kv in made.items()}
        super().__init__(source._view, source._name, source._order, entries)
        self._source, self._places, self._made = source, places, made

    def __getitem__(self, key: str) -> Any:
        return self._made[key].value if key in self._made else self._source[self._places[key]]

    def kv(self, key: str) -> KV:
        return self._made[key] if key in self._made else replace(self._source.kv(self._places[key]), key=key)


def _entry(kv: KV) -> Entry:
    head = ArrayHead(kv.item_type, len(kv.value), 0, 0) if kv.item_type is not None else None
    return Entry(kv.key, kv.type, 0, 0, head)


@dataclass(frozen=True)
class View:
    """``file`` is ``source`` in mainline's words. ``keys`` and ``names``: mainline's word -> the source's,
    where the two differ; ``unknown``: the source's keys that the layout does not explain; ``sizes``: what
    there is to tell of sizes that the source leaves out."""

    layout: Layout
    source: GGUFFile
    file: GGUFFile
    keys: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    sizes: Finding | None = None

    @property
    def judged(self) -> GGUFFile:
        """What rules are to look at: of a variant of mainline's layout, what is not mainline's in it is wrong."""
        return self.source if self.layout.variant else self.file

    def told(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """``findings`` about ``judged``, at their places in ``source``."""
        return tuple(replace(finding, where=self._place(finding.where)) for finding in findings)

    def _place(self, where: str) -> str:
        if where in self.judged.metadata or self.judged.tensor(where) is not None:
            return self.keys.get(where) or self.names.get(where) or where
        return dialect_key(self.layout, where)


def view(file: GGUFFile, layout: Layout, target: GGUFFile | None = None) -> View:
    """``file`` in mainline's words; ``target``: the open GGUF of its target, for what the draft leaves to it."""
    if layout.is_mainline:
        return View(layout, file, file)
    places, unknown = _places(file.metadata, layout)
    made = {"general.architecture": string("general.architecture", "dflash")}
    if layout.taps == "outputs" and (taps := _shifted(file.metadata, places.get(TAPS))):
        made[TAPS] = taps
    tensors = [replace(tensor, name=mainline_name(layout.name, tensor.name)) for tensor in file.tensors]
    sizes = None
    if layout.stages:
        shapes = {tensor.name: tensor.shape for tensor in tensors}
        layers = places.get(f"{MAINLINE}block_count")
        count = file.metadata[layers] if layers else 0
        known = {key.removeprefix(MAINLINE) for key in places}
        kvs, sizes = stage_keys(
            shapes, count if isinstance(count, int) and count < MAX_LIST_ITEMS else 0, known, target
        )
        made |= {kv.key: kv for kv in kvs}
    metadata = Translated(file.metadata, {key: place for key, place in places.items() if key not in made}, made)
    pairs = zip(tensors, file.tensors, strict=True)
    return View(
        layout,
        file,
        file.seen_as(metadata, tensors),
        {key: place for key, place in places.items() if key != place},
        {ours.name: theirs.name for ours, theirs in pairs if ours.name != theirs.name},
        unknown,
        sizes,
    )


def _places(metadata: Metadata, layout: Layout) -> tuple[dict[str, str], tuple[str, ...]]:
    """Mainline's key -> the file's, and the keys that nothing explains."""
    places: dict[str, str] = {}
    named = {name for names in layout.keys.values() for name in names}
    for key, names in layout.keys.items():
        held = [name for name in names if name in metadata.entries]
        if held:
            places[key] = held[0]
    unknown = []
    for key in metadata.entries:
        if OWN.fullmatch(key):
            places[key] = key
            if layout.prefix == "dspark." and key in ALSO_RUNTIME:
                places.setdefault(MAINLINE + key.removeprefix("dspark."), key)
        elif key in named or any(fnmatchcase(key, pattern) for pattern in layout.unread):
            continue
        elif layout.nested and key.startswith(layout.nested):
            unknown.append(key)
        elif layout.prefix and key.startswith(layout.prefix):
            places.setdefault(MAINLINE + key.removeprefix(layout.prefix), key)
        elif not key.startswith(MAINLINE):  # under another architecture nobody reads those
            places.setdefault(key, key)
    return places, tuple(unknown)


def _shifted(metadata: Metadata, key: str | None) -> KV | None:
    """Layer outputs as the inputs that follow them; None for what is no list of layers, which is told elsewhere.

    Numbers beyond INT32 stay what they are: the rule on taps refuses them before they are written.
    """
    head = metadata.entries[key].array if key else None
    if key is None or head is None or head.item_type not in INTEGERS or head.count > MAX_LIST_ITEMS:
        return None
    return array(TAPS, ValueType.INT32, [value + 1 for value in metadata[key]])
