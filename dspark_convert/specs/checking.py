"""What is wrong with a family's table, told by file, table and key, before anything reads it.

``FORMAT`` holds the keys that ``arch_specs`` documents. A slip in one table would else come out far away,
as a fault of every command, or as a draft that nothing was computed for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from dspark_convert.errors import EnvironmentFault
from dspark_convert.specs.computed import HOW
from dspark_convert.specs.formula import FUNCTIONS, FormulaError, in_order, names_of
from dspark_convert.words import shown


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


#: kind of value -> what it is called, and whether a value is of it
KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a string", lambda v: isinstance(v, str)),
    "strings": ("a list of strings", _strings),
    "flag": ("true or false", lambda v: isinstance(v, bool)),
    "number": ("a number", lambda v: type(v) in (int, float)),
    "values": ("a list of values", lambda v: isinstance(v, list)),
    "formula": ("a formula as a string", lambda v: isinstance(v, str)),
    "formulas": ("a list of formulas as strings", _strings),
    "table": ("a table", lambda v: isinstance(v, dict)),
    "names": ("a table of strings", lambda v: isinstance(v, dict) and all(isinstance(i, str) for i in v.values())),
    "list": ("a list of tables, each under its name in [[ ]]", lambda v: isinstance(v, list)),
}
#: a kind, or the values that are possible
Kind = str | tuple[Any, ...]
Keys = dict[str, Kind]

_ROLES = ("matrix", "expert", "router", "head", "fixed", "ids")
_TYPES = ("int", "float", "bool", "str", "int_list", "str_list")
_NAME: tuple[Keys, Keys] = ({"source": "string", "reason": "string"}, {})
_ADDED: Keys = {"gguf": "string", "shape": "formulas", "when": "formula", "reason": "string"}

#: the whole file (""), a table or a list of tables -> keys that must be there, keys that may
FORMAT: dict[str, tuple[Keys, Keys]] = {
    "": (
        {
            "name": "string",
            "title": "string",
            "backbone": ("qwen3", "gemma4", "deepseek4"),
            "rope_style": ("neox", "norm"),
            "tap_offset": (0, 1),
            "recognise": "table",
            "fields": "table",
            "derived": "names",
            "config": "table",
            "tensor": "list",
        },
        {
            "extends": "string",
            "without": "strings",
            "layer_name": "string",
            "unsupported": "strings",
            "rename": "names",
            "scales": "table",
            **dict.fromkeys(("require", "zeros", "computed", "drop", "refuse", "deviation"), "list"),
        },
    ),
    "recognise": (
        {"architectures": "strings", "tensors": "strings"},
        dict.fromkeys(("unless_tensors", "or_keys", "keys", "unless_keys", "within"), "strings"),
    ),
    "fields": (
        {"from": "strings", "type": _TYPES},
        {
            "min": "number",
            "max": "number",
            "choices": "strings",
            "formula": "formula",
            "optional": "flag",
            "check": "formula",
            "reason": "string",
        },
    ),
    "config": ({"inert": "strings"}, {"nested": "strings"}),
    "scales": ({"weight": "string", "scale": "string"}, {"tile": "string", "tensor_scale": "string"}),
    "require": ({"key": "string", "allow": "values", "reason": "string"}, {}),
    "tensor": (
        {"source": "string", "gguf": "string", "shape": "formulas"},
        {
            "when": "formula",
            "gguf_columns": "formula",
            "shared": "formula",
            "optional": "flag",
            "only": ("first", "last"),
            "stack": "formula",
            "role": _ROLES,
            "pairs": "flag",
            "offsets": "flag",
        },
    ),
    "zeros": (_ADDED, {}),
    "computed": ({**_ADDED, "how": tuple(HOW)}, {}),
    "drop": _NAME,
    "refuse": (_NAME[0], {"unless_zero": "flag"}),
    "deviation": _NAME,
}
#: these a family may leave to its backbone, in part or whole
SHARED = ("", "fields", "config")


def fault(file: str, where: str, what: str) -> EnvironmentFault:
    return EnvironmentFault(f"{file}: {where + ': ' if where else ''}{what}.")


def near(word: str, words: Iterable[str]) -> str:
    """The one of ``words`` that may have been meant, as an end of a sentence; empty if there is none."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(words), 1)
    return f" (did you mean {found[0]}?)" if found else ""


def check_shape(file: str, table: Mapping[str, Any]) -> None:
    """Raise EnvironmentFault if a file, of a family or a backbone, holds what the format does not know."""
    for part, where, entry in _entries(table):
        if not isinstance(entry, dict):
            raise fault(file, where, f"it is {shown(entry)}, expected a table of keys")
        needed, others = FORMAT[part]
        for key, value in entry.items():
            kind = needed.get(key) or others.get(key)
            if kind is None:
                has = (*needed, *others)
                raise fault(file, where, f"the format has no key {key!r}{near(key, has)}; it has {', '.join(has)}")
            if expected := _other_than(kind, value):
                raise fault(file, f"{where}: {key}" if where else key, f"it is {shown(value)}, expected {expected}")
        if part not in SHARED and (missing := [key for key in needed if key not in entry]):
            raise fault(file, where, f"{' and '.join(missing)} must be there")
        if part == "fields":
            for source in entry.get("from", []):
                if (word := source.rpartition(" ")[0]) not in ("", "not", "inputs"):
                    raise fault(file, f"{where}: from", f"{word!r} is no way to read a key (there are not and inputs)")


def _entries(table: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """What has to be a table of keys: the part of the format, how a message calls it, and what it is."""
    yield "", "", table
    for part in (key for key in table if key in FORMAT):
        found = table[part]
        if part == "fields":
            yield from ((part, f"[fields] {name}", entry) for name, entry in found.items())
        elif isinstance(found, dict):
            yield part, f"[{part}]", found
        else:
            yield from ((part, f"[[{part}]] {_name(entry, number)}", entry) for number, entry in enumerate(found, 1))


def _name(entry: Any, number: int) -> str:
    keys = ("source", "gguf", "key") if isinstance(entry, dict) else ()
    return str(next((entry[key] for key in keys if key in entry), f"number {number}"))


def _other_than(kind: Kind, value: Any) -> str:
    """What was expected, if the value is no such thing."""
    if isinstance(kind, tuple):
        fits = any(value == choice and type(value) is type(choice) for choice in kind)
        return "" if fits else " or ".join(map(repr, kind))
    what, good = KINDS[kind]
    return "" if good(value) else what


def check_whole(file: str, whole: Mapping[str, Any], base: Mapping[str, Any], backbones: Collection[str]) -> None:
    """Raise EnvironmentFault if a whole table lacks something or cannot be computed.

    ``base``: its backbone's, empty without ``extends``.
    """
    if missing := [key for key in FORMAT[""][0] if key not in whole]:
        brings = "" if base else f", or extends, which brings what a backbone has (there is {', '.join(backbones)})"
        raise fault(file, "", f"{', '.join(missing)} must be there{brings}")
    if "inert" not in whole["config"]:
        raise fault(file, "[config]", "inert must be there")
    common = base.get("fields", {})
    for name, entry in whole["fields"].items():
        where = f"[fields] {name}"
        missing = [key for key in FORMAT["fields"][0] if key not in entry]
        if missing and base:
            what = f"the backbone {base['backbone']} has no such field, and a new one needs {' and '.join(missing)}"
            raise fault(file, where, what + near(name, common))
        if missing:
            raise fault(file, where, f"{' and '.join(missing)} must be there")
        if ("check" in entry or "choices" in entry) and "reason" not in entry:
            raise fault(file, where, "what it refuses needs a reason")
    check_formulas(file, whole)


def check_formulas(file: str, table: Mapping[str, Any]) -> None:
    """Raise EnvironmentFault if a formula is none, or speaks of what the family, or backbone, does not have."""
    fields, derived = table.get("fields", {}), table.get("derived", {})
    every = fields.keys() | derived.keys()
    defaults = {name: entry.get("formula") for name, entry in fields.items()}
    for part, formulas in (("fields", defaults), ("derived", derived)):
        for name, formula in formulas.items():
            if formula is not None:
                _check_formula(file, f"[{part}] {name}", formula, every)
    known: set[str] = set()
    for part, formulas in (("fields", defaults), ("derived", derived)):
        for name in in_order(formulas):
            formula = formulas[name]
            if formula is not None and (early := names_of(formula) - known):
                what = f"{_quoted(formula)} cannot be computed: {min(early)} has no value yet where it is"
                raise fault(file, f"[{part}] {name}", what)
            known.add(name)
    for name, entry in fields.items():
        if "check" in entry:
            _check_formula(file, f"[fields] {name}: check", entry["check"], every)
    for part in ("tensor", "zeros", "computed"):
        for number, entry in enumerate(table.get(part, []), 1):
            where = f"[[{part}]] {_name(entry, number)}"
            for key in ("when", "gguf_columns", "stack"):
                if key in entry:
                    _check_formula(file, f"{where}: {key}", entry[key], every)
            for formula in entry["shape"]:
                _check_formula(file, f"{where}: shape", formula, every)
            if "shared" in entry:  # asked before there are fields
                _check_formula(file, f"{where}: shared", entry["shared"], ())


def _check_formula(file: str, where: str, formula: str, known: Collection[str]) -> None:
    try:
        names = names_of(formula)
    except FormulaError as e:
        raise fault(file, where, str(e)) from None
    for name in sorted(names):
        if name not in known:
            kinds = "no field, no derived name" if known else "no tensor's name"
            functions = ", ".join(FUNCTIONS)
            what = f"{name} is {kinds} and no function ({functions}){near(name, [*known, *FUNCTIONS, 'True', 'False'])}"
            raise fault(file, where, f"{_quoted(formula)} cannot be computed: {what}")


def _quoted(formula: str) -> str:
    return f"the formula {formula!r}"
