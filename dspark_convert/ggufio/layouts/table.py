"""The tables of layouts, loaded once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from dspark_convert.ggufio.types import GGMLType, ValueType

#: the most telling first: of the layouts that a file fits, the first is its own
ORDER = (
    "dspark-prism",
    "dspark-fork",
    "dspark",
    "dflash-log-snr",
    "dflash-v4.1",
    "dflash-bare",
    "dflash-no-vocab",
    "dflash",
    "dflash-draft",
    "ds4",
    "ds41",
    "deepseek4-dflash-draft",
    "deepseek-v4-flash-dspark-draft",
)


@dataclass(frozen=True)
class Recognise:
    """Evidence, of which one piece is enough; none at all fits every file of the architecture."""

    keys: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    values: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Unportable:
    """A draft is this if ``key`` is ``value``, or differs from key ``unless_equals``, or a tensor is there."""

    reason: str
    key: str = ""
    value: Any = None
    unless_equals: str = ""
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Expresses:
    """Which drafts can be written in a layout; ``taps`` is the most that it takes, ``keys`` all that it has,
    ``holds`` what of layers beyond the plain ones its engine computes ("window", "rotation")."""

    backbone: Literal["any", "layers", "stages"] = "any"
    markov: Literal["any", "required"] = "any"
    anchor: Literal["any", "first"] = "any"
    confidence: Literal["any", "required"] = "any"
    tables: Literal["any", "required"] = "any"
    vocabulary: Literal["target", "none"] = "target"
    causal: bool = True
    taps: int | None = None
    keys: tuple[str, ...] = ("*",)
    holds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Write:
    """A key that is written beside those that mainline has too: a field of Draft, or a fixed value."""

    key: str
    type: ValueType
    field: str = ""
    value: Any = None


@dataclass(frozen=True)
class Layout:
    """One layout of draft files; see the package's docstring for the fields."""

    name: str
    title: str
    architectures: tuple[str, ...]
    prefix: str
    runs_on: str
    differs: str
    unwritten: str
    unreadable: str
    recognise: Recognise
    nested: str
    taps: Literal["inputs", "outputs"]
    tap_type: ValueType
    stages: bool
    variant: bool
    keys: Mapping[str, tuple[str, ...]]
    unread: tuple[str, ...]
    omits: tuple[str, ...]
    tensors: tuple[tuple[str, str], ...]
    absent: tuple[str, ...]
    types: tuple[tuple[str, tuple[GGMLType, ...]], ...]
    unportable: tuple[Unportable, ...]
    expresses: Expresses
    write: tuple[Write, ...]

    @property
    def is_mainline(self) -> bool:
        """Whether its keys and names are mainline's, however much of the rest is missing."""
        return self.name == "dflash"

    def takes(self, name: str) -> tuple[GGMLType, ...]:
        """The types in which mainline's tensor ``name`` may be here; none at all: any."""
        return next((kinds for pattern, kinds in self.types if fnmatchcase(name, pattern)), ())


@cache
def layouts() -> tuple[Layout, ...]:
    """All layouts, in the order in which they are tried."""
    return tuple(_load(name) for name in ORDER)


def layout_named(name: str) -> Layout:
    """The layout ``name``; KeyError if there is none."""
    return next((layout for layout in layouts() if layout.name == name), None) or _unknown(name)


def _unknown(name: str) -> Layout:
    raise KeyError(name)


def _load(name: str) -> Layout:
    table = tomllib.loads((files(__package__) / f"{name}.toml").read_text("utf-8"))
    keys = table.get("keys", {})
    return Layout(
        name=name,
        title=table["title"],
        architectures=tuple(table["architectures"]),
        prefix=table["prefix"],
        runs_on=table["runs_on"],
        differs=table.get("differs", ""),
        unwritten=table.get("unwritten", ""),
        unreadable=table.get("unreadable", ""),
        recognise=Recognise(**_tuples(table.get("recognise", {}))),
        nested=table.get("nested", ""),
        taps=table.get("taps", "inputs"),
        tap_type=ValueType[table.get("tap_type", "INT32")],
        stages=table.get("stages", False),
        variant=table.get("variant", False),
        keys={key: (found,) if isinstance(found, str) else tuple(found) for key, found in keys.items()},
        unread=tuple(table.get("unread", ())),
        omits=tuple(table.get("omits", ())),
        tensors=tuple((theirs, mainline) for theirs, mainline in table.get("tensors", ())),
        absent=tuple(table.get("absent", ())),
        types=tuple((pattern, tuple(GGMLType[kind] for kind in kinds)) for pattern, kinds in table.get("types", ())),
        unportable=tuple(Unportable(**_tuples(entry)) for entry in table.get("unportable", ())),
        expresses=Expresses(**_tuples(table.get("expresses", {}))),
        write=tuple(Write(**{**entry, "type": ValueType[entry["type"]]}) for entry in table.get("write", ())),
    )


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
