"""Loads the arch specs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

from dspark_convert.specs.checking import check_formulas, check_shape, check_whole, fault
from dspark_convert.specs.extend import extend
from dspark_convert.specs.formula import in_order

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
    """One family; the parts are documented in ``arch_specs``, and ``file`` is its own there.

    Paths into config.json are listed with and without each of ``nested``.
    """

    file: str
    name: str
    title: str
    backbone: str
    rope_style: str
    tap_offset: int
    architectures: tuple[str, ...]
    required_tensors: tuple[str, ...]
    foreign_tensors: tuple[str, ...]
    instead_keys: tuple[str, ...]
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


def parse_spec(table: dict[str, Any], file: str) -> Spec:
    """A spec from its whole table, which was checked."""
    recognise, config = table["recognise"], table["config"]
    nested = tuple(config.get("nested", []))
    prefixes = ("", *(f"{name}." for name in nested))
    scales, derived = table.get("scales"), table["derived"]
    return Spec(
        file=file,
        name=table["name"],
        title=table["title"],
        backbone=table["backbone"],
        rope_style=table["rope_style"],
        tap_offset=table["tap_offset"],
        architectures=tuple(recognise["architectures"]),
        required_tensors=tuple(recognise["tensors"]),
        foreign_tensors=tuple(recognise.get("unless_tensors", [])),
        instead_keys=tuple(recognise.get("or_keys", [])),
        keys=tuple(recognise.get("keys", [])),
        foreign_keys=tuple(recognise.get("unless_keys", [])),
        within=tuple(recognise.get("within", [])),
        rename=tuple(table.get("rename", {}).items()),
        layer_name=table.get("layer_name", "layer"),
        fields=tuple(_fields(table["fields"], prefixes)),
        derived=tuple((name, derived[name]) for name in in_order(derived)),
        require=tuple(rule for entry in table.get("require", []) for rule in _require(entry, prefixes)),
        inert=tuple(prefix + pattern for pattern in config["inert"] for prefix in prefixes),
        nested=nested,
        scales=None if scales is None else Scales(**scales),
        tensors=tuple(TensorRule(**(entry | {"shape": tuple(entry["shape"])})) for entry in table["tensor"]),
        zeros=tuple(ZerosRule(**(entry | {"shape": tuple(entry["shape"])})) for entry in table.get("zeros", [])),
        computed=tuple(ComputedRule(**(e | {"shape": tuple(e["shape"])})) for e in table.get("computed", [])),
        drop=tuple(NameRule(**entry) for entry in table.get("drop", [])),
        refuse=tuple(NameRule(**entry) for entry in table.get("refuse", [])),
        unsupported=tuple(table.get("unsupported", [])),
        deviations=tuple(NameRule(**entry) for entry in table.get("deviation", [])),
    )


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
    """Every spec of the package ``arch_specs``, by file name; EnvironmentFault if a table has a slip."""
    return load_folder(files("arch_specs"))


def load_folder(folder: Traversable) -> tuple[Spec, ...]:
    """The specs of a folder that is laid out as ``arch_specs``."""
    bases = {}
    for path in _tables(folder / "backbones"):
        file = f"arch_specs/backbones/{path.name}"
        bases[path.name.removesuffix(".toml")] = base = read_table(path, file)
        check_formulas(file, base)
    specs: dict[str, Spec] = {}
    for path in _tables(folder):
        file = f"arch_specs/{path.name}"
        spec = parse_spec(whole_table(read_table(path, file), bases, file), file)
        if spec.name in specs:
            raise fault(file, "name", f"{specs[spec.name].file} has the name {spec.name!r} too")
        specs[spec.name] = spec
    return tuple(specs.values())


def _tables(folder: Traversable) -> list[Traversable]:
    return sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)


def read_table(path: Traversable, file: str) -> dict[str, Any]:
    """The table of a family or a backbone as it stands there."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise fault(file, "", "it is no text in UTF-8") from None
    except tomllib.TOMLDecodeError as e:
        place = re.search(r" \(at line (\d+), column (\d+)\)$", str(e))
        where = f"{file}:{place[1]}:{place[2]}" if place else file
        raise fault(where, "", str(e)[: place.start()] if place else str(e)) from None
    check_shape(file, table)
    return table


def whole_table(table: dict[str, Any], bases: dict[str, dict[str, Any]], file: str) -> dict[str, Any]:
    """A family's table with what it shares with its backbone's other families."""
    base: dict[str, Any] = {}
    if (name := table.get("extends")) is not None:
        if name not in bases:
            there = f"there is no arch_specs/backbones/{name}.toml (there is {', '.join(bases)})"
            raise fault(file, "extends", there)
        base = bases[name]
        table = extend(base, table, file)
    check_whole(file, table, base, bases)
    return table


def flat_name(name: str) -> str:
    """A tensor's name without the ``model.`` that some trainers put in front."""
    return name.removeprefix("model.")
