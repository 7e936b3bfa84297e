"""A family's table over that of its backbone: what families have in common is written once.

The rules are those of ``extends`` in ``arch_specs``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: lists of tables -> the key that says which entry of the backbone an entry of the family replaces
LISTS = {
    "require": "key",
    "tensor": "gguf",
    "zeros": "gguf",
    "computed": "gguf",
    "drop": "source",
    "refuse": "source",
    "deviation": "source",
}


def extend(base: Mapping[str, Any], family: Mapping[str, Any]) -> dict[str, Any]:
    """The whole table of a family; KeyError if ``without`` names what the backbone does not have."""
    parts = dict(family)
    del parts["extends"]
    unused = set(parts.pop("without", []))
    left_out = frozenset(unused)

    def kept(names: Iterable[str]) -> set[str]:
        found = set(names)
        unused.difference_update(found)
        return found - left_out

    whole: dict[str, Any] = {**base, **parts}
    for part in ("fields", "derived"):
        ours, theirs = base.get(part, {}), parts.get(part, {})
        whole[part] = {name: ours[name] for name in ours if name in kept(ours)} | theirs
        if part == "fields":
            whole[part] |= {name: {**ours[name], **theirs[name]} for name in theirs if name in ours}
    for part, key in LISTS.items():
        own = parts.get(part, [])
        replaced = {entry[key]: entry for entry in own}
        names = kept(entry[key] for entry in base.get(part, []))
        common = [replaced.pop(e[key], e) for e in base.get(part, []) if e[key] in names]
        # The first pattern that fits decides, and a family's own is the narrower one.
        whole[part] = [*replaced.values(), *common] if part in ("drop", "refuse") else [*common, *replaced.values()]
    config = parts.get("config", {})
    inert = base["config"]["inert"]
    whole["config"] = {**config, "inert": [p for p in inert if p in kept(inert)] + config.get("inert", [])}
    if unused:
        raise KeyError(f"{family['name']}: the backbone has no {', '.join(sorted(unused))} to go without")
    return whole


def in_order(formulas: Mapping[str, str | None]) -> list[str]:
    """Names in the order in which their ``formulas`` can be computed, else in their own."""
    done: list[str] = []
    waiting = list(formulas)
    while waiting:
        ready = next((n for n in waiting if not _needs(formulas[n]) & set(waiting) - {n}), waiting[0])
        waiting.remove(ready)
        done.append(ready)
    return done


def _needs(formula: str | None) -> set[str]:
    return set(_names(formula)) if formula else set()


def _names(formula: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(formula, mode="eval")):
        if isinstance(node, ast.Name):
            yield node.id
