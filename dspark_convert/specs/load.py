"""Loads the arch specs."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from dspark_convert.specs.extend import extend, in_order

#: what a matrix is for, which decides its type (``dspark_convert.specs.policy``)
Role = Literal["matrix", "expert", "router", "head", "fixed", "ids"]


@dataclass(frozen=True)
class Field:
    name: str
    sources: tuple[str, ...]
    type: str
    choices: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    formula: str | None = None
    optional: bool = False
    check: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Require:
    key: str
    allow: tuple[Any, ...]
    reason: str


@dataclass(frozen=True)
class TensorRule:
    """``source`` and ``gguf`` may hold ``{layer}``; ``shape`` is row-major, as formulas.

    ``shared`` is a formula over the tensors that are there.
    """

    source: str
    gguf: str
    shape: tuple[str, ...]
    when: str = "True"
    gguf_columns: str | None = None
    shared: str = "False"
    optional: bool = False
    only: Literal["first", "last"] | None = None
    stack: str | None = None
    role: Role = "matrix"
    pairs: bool = False
    offsets: bool = False

    @property
    def per_layer(self) -> bool:
        return "{layer}" in self.source


@dataclass(frozen=True)
class Scales:
    """The name of a weight's scale: the ending ``weight`` of its own replaced by ``scale``.

    ``tensor_scale`` likewise names the one number of NVFP4; without it codes of four bits are MXFP4's.
    """

    weight: str
    scale: str
    tile: str = ""
    tensor_scale: str = ""


@dataclass(frozen=True)
class ZerosRule:
    gguf: str
    shape: tuple[str, ...]
    when: str
    reason: str


@dataclass(frozen=True)
class ComputedRule:
    """``how``: a function of ``dspark_convert.specs.computed``."""

    gguf: str
    shape: tuple[str, ...]
    when: str
    how: str
    reason: str


@dataclass(frozen=True)
class NameRule:
    source: str
    reason: str
    unless_zero: bool = False


@dataclass(frozen=True)
class Spec:
    """One family; the parts are documented in ``arch_specs``.

    Paths into config.json are listed with and without each of ``nested``.
    """

    name: str
    title: str
    backbone: str
    rope_style: str
    tap_offset: int
    architectures: tuple[str, ...]
    required_tensors: tuple[str, ...]
    foreign_tensors: tuple[str, ...]
    keys: tuple[str, ...]
    foreign_keys: tuple[str, ...]
    within: tuple[str, ...]
    rename: tuple[tuple[str, str], ...]
    layer_name: str
    fields: tuple[Field, ...]
    derived: tuple[tuple[str, str], ...]
    require: tuple[Require, ...]
    inert: tuple[str, ...]
    nested: tuple[str, ...]
    scales: Scales | None
    tensors: tuple[TensorRule, ...]
    zeros: tuple[ZerosRule, ...]
    computed: tuple[ComputedRule, ...]
    drop: tuple[NameRule, ...]
    refuse: tuple[NameRule, ...]
    unsupported: tuple[str, ...]
    deviations: tuple[NameRule, ...]

    def flat_name(self, name: str) -> str:
        """A tensor's name as the spec writes it."""
        short = flat_name(name)
        for start, ours in self.rename:
            if short.startswith(start):
                return ours + short.removeprefix(start)
        return short

    def speaks_of(self, name: str) -> bool:
        """Whether the tensor of this flat name is the draft's, where the checkpoint holds the target too."""
        return not self.within or any(fnmatchcase(name, pattern) for pattern in self.within)


def parse_spec(table: dict[str, Any]) -> Spec:
    """A spec from its TOML table; a missing or unknown key is a KeyError or TypeError (our own bug)."""
    parts = dict(table)
    recognise, config = dict(parts.pop("recognise")), dict(parts.pop("config"))
    nested = tuple(config.pop("nested", []))
    prefixes = ("", *(f"{name}." for name in nested))
    scales, derived = parts.pop("scales", None), parts.pop("derived")
    spec = Spec(
        name=parts.pop("name"),
        title=parts.pop("title"),
        backbone=parts.pop("backbone"),
        rope_style=parts.pop("rope_style"),
        tap_offset=parts.pop("tap_offset"),
        architectures=tuple(recognise.pop("architectures")),
        required_tensors=tuple(recognise.pop("tensors")),
        foreign_tensors=tuple(recognise.pop("unless_tensors", [])),
        keys=tuple(recognise.pop("keys", [])),
        foreign_keys=tuple(recognise.pop("unless_keys", [])),
        within=tuple(recognise.pop("within", [])),
        rename=tuple(parts.pop("rename", {}).items()),
        layer_name=parts.pop("layer_name", "layer"),
        fields=tuple(_fields(parts.pop("fields"), prefixes)),
        derived=tuple((name, derived[name]) for name in in_order(derived)),
        require=tuple(rule for entry in parts.pop("require", []) for rule in _require(entry, prefixes)),
        inert=tuple(prefix + pattern for pattern in config.pop("inert") for prefix in prefixes),
        nested=nested,
        scales=None if scales is None else Scales(**scales),
        tensors=tuple(TensorRule(**(entry | {"shape": tuple(entry["shape"])})) for entry in parts.pop("tensor")),
        zeros=tuple(ZerosRule(**(entry | {"shape": tuple(entry["shape"])})) for entry in parts.pop("zeros", [])),
        computed=tuple(ComputedRule(**(e | {"shape": tuple(e["shape"])})) for e in parts.pop("computed", [])),
        drop=tuple(NameRule(**entry) for entry in parts.pop("drop", [])),
        refuse=tuple(NameRule(**entry) for entry in parts.pop("refuse", [])),
        unsupported=tuple(parts.pop("unsupported", [])),
        deviations=tuple(NameRule(**entry) for entry in parts.pop("deviation", [])),
    )
    if unknown := [*parts, *recognise, *config]:
        raise KeyError(f"{spec.name}: unknown keys {', '.join(unknown)}")
    return spec


def _fields(table: dict[str, dict[str, Any]], prefixes: tuple[str, ...]) -> Iterator[Field]:
    for name in in_order({name: entry.get("formula") for name, entry in table.items()}):
        yield _field(name, table[name], prefixes)


def _field(name: str, entry: dict[str, Any], prefixes: tuple[str, ...]) -> Field:
    rest = {key: value for key, value in entry.items() if key not in ("from", "choices")}
    sources = tuple(_below(source, prefix) for prefix in prefixes for source in entry["from"])
    return Field(name=name, sources=sources, choices=tuple(entry.get("choices", ())), **rest)


def _below(source: str, prefix: str) -> str:
    word, path = reading(source)
    return f"{word} {prefix}{path}".lstrip()


def reading(source: str) -> tuple[str, str]:
    """How a config path of a field is read ("", "not" or "inputs"), and the path."""
    word, _, path = source.rpartition(" ")
    return word, path


def _require(entry: dict[str, Any], prefixes: tuple[str, ...]) -> Iterator[Require]:
    for prefix in prefixes:
        yield Require(**(entry | {"key": prefix + entry["key"], "allow": tuple(entry["allow"])}))


@cache
def load_specs() -> tuple[Spec, ...]:
    """Every spec of the package ``arch_specs``, by file name."""
    tables = sorted((f for f in files("arch_specs").iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(parse_spec(whole_table(tomllib.loads(f.read_text("utf-8")))) for f in tables)


def whole_table(table: dict[str, Any]) -> dict[str, Any]:
    """A family's table with what it shares with its backbone's other families."""
    if "extends" not in table:
        return table
    backbone = files("arch_specs") / "backbones" / f"{table['extends']}.toml"
    return extend(tomllib.loads(backbone.read_text("utf-8")), table)


def flat_name(name: str) -> str:
    """A tensor's name without the ``model.`` that some trainers put in front."""
    return name.removeprefix("model.")
