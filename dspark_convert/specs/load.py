"""Loads the arch specs and decides which one a checkpoint belongs to."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from dspark_convert.errors import InputError
from dspark_convert.source.classify import architectures, describe

#: what a matrix is for, which decides its type (``dspark_convert.specs.policy``)
Role = Literal["matrix", "expert", "router", "head", "fixed"]


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
    """``source`` and ``gguf`` may hold ``{layer}``; ``shape`` is row-major, as formulas."""

    source: str
    gguf: str
    shape: tuple[str, ...]
    when: str = "True"
    gguf_columns: str | None = None
    shared: bool = False
    optional: bool = False
    only: Literal["first", "last"] | None = None
    stack: str | None = None
    role: Role = "matrix"

    @property
    def per_layer(self) -> bool:
        return "{layer}" in self.source


@dataclass(frozen=True)
class Scales:
    """The name of a weight's scale: the ending ``weight`` of its own replaced by ``scale``."""

    weight: str
    scale: str
    tile: str


@dataclass(frozen=True)
class ZerosRule:
    gguf: str
    shape: tuple[str, ...]
    when: str
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
    within: tuple[str, ...]
    layer_name: str
    fields: tuple[Field, ...]
    derived: tuple[tuple[str, str], ...]
    require: tuple[Require, ...]
    inert: tuple[str, ...]
    nested: tuple[str, ...]
    scales: Scales | None
    tensors: tuple[TensorRule, ...]
    zeros: tuple[ZerosRule, ...]
    drop: tuple[NameRule, ...]
    refuse: tuple[NameRule, ...]
    unsupported: tuple[str, ...]
    deviations: tuple[NameRule, ...]

    def speaks_of(self, name: str) -> bool:
        """Whether the tensor of this flat name is the draft's, where the checkpoint holds the target too."""
        return not self.within or any(fnmatchcase(name, pattern) for pattern in self.within)


def parse_spec(table: dict[str, Any]) -> Spec:
    """A spec from its TOML table; a missing or unknown key is a KeyError or TypeError (our own bug)."""
    parts = dict(table)
    recognise, config = dict(parts.pop("recognise")), dict(parts.pop("config"))
    nested = tuple(config.pop("nested", []))
    prefixes = ("", *(f"{name}." for name in nested))
    scales = parts.pop("scales", None)
    spec = Spec(
        name=parts.pop("name"),
        title=parts.pop("title"),
        backbone=parts.pop("backbone"),
        rope_style=parts.pop("rope_style"),
        tap_offset=parts.pop("tap_offset"),
        architectures=tuple(recognise.pop("architectures")),
        required_tensors=tuple(recognise.pop("tensors")),
        foreign_tensors=tuple(recognise.pop("unless_tensors")),
        within=tuple(recognise.pop("within", [])),
        layer_name=parts.pop("layer_name", "layer"),
        fields=tuple(_field(name, entry, prefixes) for name, entry in parts.pop("fields").items()),
        derived=tuple(parts.pop("derived").items()),
        require=tuple(rule for entry in parts.pop("require") for rule in _require(entry, prefixes)),
        inert=tuple(prefix + pattern for pattern in config.pop("inert") for prefix in prefixes),
        nested=nested,
        scales=None if scales is None else Scales(**scales),
        tensors=tuple(TensorRule(**(entry | {"shape": tuple(entry["shape"])})) for entry in parts.pop("tensor")),
        zeros=tuple(ZerosRule(**(entry | {"shape": tuple(entry["shape"])})) for entry in parts.pop("zeros", [])),
        drop=tuple(NameRule(**entry) for entry in parts.pop("drop", [])),
        refuse=tuple(NameRule(**entry) for entry in parts.pop("refuse", [])),
        unsupported=tuple(parts.pop("unsupported", [])),
        deviations=tuple(NameRule(**entry) for entry in parts.pop("deviation", [])),
    )
    if unknown := [*parts, *recognise, *config]:
        raise KeyError(f"{spec.name}: unknown keys {', '.join(unknown)}")
    return spec


def _field(name: str, entry: dict[str, Any], prefixes: tuple[str, ...]) -> Field:
    rest = {key: value for key, value in entry.items() if key not in ("from", "choices")}
    sources = tuple(_below(source, prefix) for prefix in prefixes for source in entry["from"])
    return Field(name=name, sources=sources, choices=tuple(entry.get("choices", ())), **rest)


def _below(source: str, prefix: str) -> str:
    path = source.removeprefix("not ")
    return source if not prefix else f"{'not ' if path != source else ''}{prefix}{path}"


def _require(entry: dict[str, Any], prefixes: tuple[str, ...]) -> Iterator[Require]:
    for prefix in prefixes:
        yield Require(**(entry | {"key": prefix + entry["key"], "allow": tuple(entry["allow"])}))


@cache
def load_specs() -> tuple[Spec, ...]:
    """Every spec of the package ``arch_specs``, by file name."""
    tables = sorted((f for f in files("arch_specs").iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(parse_spec(tomllib.loads(f.read_text("utf-8"))) for f in tables)


def flat_name(name: str) -> str:
    """A tensor's name without the ``model.`` that some trainers put in front."""
    return name.removeprefix("model.")


def match_spec(config: Mapping[str, Any], tensors: Iterable[str]) -> Spec:
    """The spec of the checkpoint with this config and these tensor names.

    Raises InputError that says what the checkpoint is instead.
    """
    declared = architectures(config)
    names = {flat_name(name) for name in tensors}
    known = sorted(a for spec in load_specs() for a in spec.architectures)
    if not declared:
        raise InputError(
            f"config.json names no architectures (the checkpoint looks like {describe(config, names)}); "
            f"expected one of {', '.join(known)}."
        )
    for spec in load_specs():
        if not any(architecture in spec.architectures for architecture in declared):
            continue
        foreign = sorted(name for pattern in spec.foreign_tensors for name in matching(names, pattern))
        if foreign:
            raise InputError(
                f"this is {describe(config, names)}: it holds {foreign[0]} and is no {spec.title}; "
                "no spec of this version covers it."
            )
        if not any(matching(names, pattern) for pattern in spec.required_tensors):
            missing = ", ".join(spec.required_tensors)
            raise InputError(
                f"config.json says {', '.join(declared)}, but the tensors are those of {describe(config, names)} "
                f"(none of {missing} is there)."
            )
        return spec
    raise InputError(f"this is {describe(config, names)}; this version converts {', '.join(known)}.")


def needed_tensors(config: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Of a checkpoint's tensor names those that a conversion reads, in their order.

    Names alone decide, so an index is enough. Raises InputError as ``match_spec`` does.
    """
    names = list(names)
    spec = match_spec(config, names)
    ours = [name for name in names if spec.speaks_of(flat_name(name))]
    return [name for name in ours if not any(fnmatchcase(flat_name(name), rule.source) for rule in spec.drop)]


def shared_tensors(config: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Of a checkpoint's tensor names those of tables that may be borrowed from the target, in their order.

    Raises InputError as ``match_spec`` does.
    """
    names = list(names)
    patterns = [rule.source.replace("{layer}", "*") for rule in match_spec(config, names).tensors if rule.shared]
    return [name for name in names if any(fnmatchcase(flat_name(name), pattern) for pattern in patterns)]


def choose_tensors(config: Mapping[str, Any], names: Iterable[str]) -> tuple[list[str], bool]:
    """The needed among an index's tensors, and whether the target's stand beside them (``source.checkpoint.Needs``).

    None where the checkpoint is of no known family: its names have told enough.
    """
    names = list(names)
    try:
        return needed_tensors(config, names), holds_target(config)
    except InputError:
        return [], False


def holds_target(config: Mapping[str, Any]) -> bool:
    """Whether checkpoints of this class hold the target, and the draft inside it."""
    declared = architectures(config)
    return any(spec.within and any(a in spec.architectures for a in declared) for spec in load_specs())
