"""A family's table over that of its backbone: what families have in common is written once.

The rules are those of ``extends`` in ``arch_specs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dspark_convert.specs.checking import fault, near

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


def extend(base: Mapping[str, Any], family: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The whole table of a family; EnvironmentFault if ``without`` names what the backbone does not have."""
    parts = dict(family)
    del parts["extends"]
    unused = set(parts.pop("without", []))
    left_out = frozenset(unused)

    there: set[str] = set()

    def kept(names: Iterable[str]) -> set[str]:
        found = set(names)
        there.update(found)
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
        # A tensor is left out by either name: by its source alone where zeros have its place.
        keys = {key, "source"} if part == "tensor" else {key}
        names = kept(entry[each] for entry in base.get(part, []) for each in keys)
        common = [replaced.pop(e[key], e) for e in base.get(part, []) if names.issuperset(e[each] for each in keys)]
        # The first pattern that fits decides, and a family's own is the narrower one.
        whole[part] = [*replaced.values(), *common] if part in ("drop", "refuse") else [*common, *replaced.values()]
    config = parts.get("config", {})
    inert = base.get("config", {}).get("inert", [])
    whole["config"] = {**config, "inert": [p for p in inert if p in kept(inert)] + config.get("inert", [])}
    if unused:
        hint = near(min(unused), there) if len(unused) == 1 else ""
        raise fault(file, "without", f"the backbone has no {', '.join(sorted(unused))} to go without{hint}")
    return whole
