"""Loads the arch specs and decides which one a checkpoint belongs to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.source.classify import architectures, describe


@dataclass(frozen=True)
class Field:
    name: str
    sources: tuple[str, ...]
    type: str
    choices: tuple[str, ...] = ()
    min: float | None = None
    max: float | None = None
    formula: str | None = None
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

    @property
    def per_layer(self) -> bool:
        return "{layer}" in self.source


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
    """One family; the parts are documented in ``arch_specs``."""

    name: str
    title: str
    backbone: str
    rope_style: str
    tap_offset: int
    architectures: tuple[str, ...]
    required_tensors: tuple[str, ...]
    foreign_tensors: tuple[str, ...]
    fields: tuple[Field, ...]
    derived: tuple[tuple[str, str], ...]
    require: tuple[Require, ...]
    inert: tuple[str, ...]
    tensors: tuple[TensorRule, ...]
    zeros: tuple[ZerosRule, ...]
    drop: tuple[NameRule, ...]
    refuse: tuple[NameRule, ...]


def parse_spec(table: dict[str, Any]) -> Spec:
    """A spec from its TOML table; a missing or unknown key is a KeyError or TypeError (our own bug)."""
    parts = dict(table)
    recognise, config = dict(parts.pop("recognise")), dict(parts.pop("config"))
    spec = Spec(
        name=parts.pop("name"),
        title=parts.pop("title"),
        backbone=parts.pop("backbone"),
        rope_style=parts.pop("rope_style"),
        tap_offset=parts.pop("tap_offset"),
        architectures=tuple(recognise.pop("architectures")),
        required_tensors=tuple(recognise.pop("tensors")),
        foreign_tensors=tuple(recognise.pop("unless_tensors")),
        fields=tuple(_field(name, entry) for name, entry in parts.pop("fields").items()),
        derived=tuple(parts.pop("derived").items()),
        require=tuple(Require(**(entry | {"allow": tuple(entry["allow"])})) for entry in parts.pop("require")),
        inert=tuple(config.pop("inert")),
        tensors=tuple(TensorRule(**(entry | {"shape": tuple(entry["shape"])})) for entry in parts.pop("tensor")),
        zeros=tuple(ZerosRule(**(entry | {"shape": tuple(entry["shape"])})) for entry in parts.pop("zeros", [])),
        drop=tuple(NameRule(**entry) for entry in parts.pop("drop", [])),
        refuse=tuple(NameRule(**entry) for entry in parts.pop("refuse", [])),
    )
    if unknown := [*parts, *recognise, *config]:
        raise KeyError(f"{spec.name}: unknown keys {', '.join(unknown)}")
    return spec


def _field(name: str, entry: dict[str, Any]) -> Field:
    rest = {key: value for key, value in entry.items() if key not in ("from", "choices")}
    return Field(name=name, sources=tuple(entry["from"]), choices=tuple(entry.get("choices", ())), **rest)


@cache
def load_specs() -> tuple[Spec, ...]:
    """Every spec of the package ``arch_specs``, by file name."""
    tables = sorted((f for f in files("arch_specs").iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return tuple(parse_spec(tomllib.loads(f.read_text("utf-8"))) for f in tables)


def flat_name(name: str) -> str:
    """A tensor's name without the ``model.`` that some trainers put in front."""
    return name.removeprefix("model.")


def match_spec(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Spec:
    """The spec of the checkpoint with this config and these tensor names.

    Raises InputError that says what the checkpoint is instead.
    """
    declared = architectures(config)
    names = {flat_name(name) for name in tensors}
    known = sorted(a for spec in load_specs() for a in spec.architectures)
    what = describe(config, names)
    if not declared:
        raise InputError(
            f"config.json names no architectures (the checkpoint looks like {what}); "
            f"expected one of {', '.join(known)}."
        )
    for spec in load_specs():
        if not any(architecture in spec.architectures for architecture in declared):
            continue
        foreign = [n for n in sorted(names) if any(fnmatchcase(n, p) for p in spec.foreign_tensors)]
        if foreign:
            raise InputError(
                f"this is {what}: it holds {foreign[0]} and is no {spec.title}; no spec of this version covers it."
            )
        if not any(name in names for name in spec.required_tensors):
            missing = ", ".join(spec.required_tensors)
            raise InputError(
                f"config.json says {', '.join(declared)}, but the tensors are those of {what} "
                f"(none of {missing} is there)."
            )
        return spec
    raise InputError(f"this is {what}; this version converts {', '.join(known)}.")
