"""Which spec a checkpoint belongs to, by its class, its config's keys and its tensors' names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.source.classify import architectures, describe, telling
from dspark_convert.specs.formula import evaluate
from dspark_convert.specs.load import Spec, flat_name, load_specs
from dspark_convert.words import listed

#: of tensors that a family has not
NAMED = 3


def lookup(config: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, a number being an item of a list; None where there is none."""
    value: Any = config
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def match_spec(config: Mapping[str, Any], tensors: Iterable[str]) -> Spec:
    """The spec of the checkpoint with this config and these tensor names.

    Raises InputError that says what the checkpoint is instead, and EnvironmentFault if two tables
    claim one class's.
    """
    declared = architectures(config)
    tensors = list(tensors)
    found = fitting(config, tensors)
    if len(found) > 1:
        _refuse_twins(found)
        raise InputError(
            f"config.json names classes of {len(found)} families ({' and '.join(spec.title for spec in found)}): "
            f"{', '.join(declared)}; leave the one that the draft is of."
        )
    if found:
        return found[0]
    names = {flat_name(name) for name in tensors}
    known = sorted({a for spec in load_specs() if not spec.unsupported for a in spec.architectures})
    if not declared:
        raise InputError(
            f"config.json names no architectures (the checkpoint looks like {describe(config, names)}); "
            f"expected one of {', '.join(known)}."
        )
    of_class = [spec for spec in load_specs() if any(a in spec.architectures for a in declared)]
    if not of_class:
        raise InputError(
            f"this is {describe(config, names)}; this version converts {', '.join(known)}; "
            "docs/adding-a-family.md says what it takes to add another."
        )
    against = {spec.name: _against(spec, config, tensors) for spec in of_class}
    if len(of_class) == 1 and of_class[0].rename:
        what = f"it is no {of_class[0].title}: {against[of_class[0].name]}"
        raise InputError(f"config.json says {', '.join(declared)}, but {what}.")
    if len(of_class) == 1 and _has_its_own(of_class[0], names):
        (spec,) = of_class
        if foreign := _foreign(spec, names):
            raise InputError(
                f"config.json says {', '.join(declared)}, but the checkpoint holds {listed(foreign, NAMED)} too, "
                f"which no {spec.title} has: correct the class, or remove what is left over."
            )
    if len(of_class) == 1:
        raise InputError(
            f"config.json says {', '.join(declared)}, but the tensors are those of {describe(config, names)} "
            f"({against[of_class[0].name]})."
        )
    reasons = "; ".join(f"no {spec.title}: {against[spec.name]}" for spec in of_class)
    raise InputError(
        f"config.json says {', '.join(declared)}, but the checkpoint is that of {describe(config, names)} ({reasons})."
    )


def _refuse_twins(found: list[Spec]) -> None:
    """Raise EnvironmentFault if two of the specs are of one class: their tables must tell them apart."""
    for one, other in combinations(found, 2):
        if set(one.architectures) & set(other.architectures):
            raise EnvironmentFault(
                f"the tables {one.file} and {other.file} both fit this checkpoint; "
                "give one of them unless_tensors or unless_keys."
            )


def fitting(config: Mapping[str, Any], tensors: Collection[str]) -> list[Spec]:
    """Every spec that nothing speaks against. Families exclude each other, so a class is of one, or of none."""
    declared = architectures(config)
    of_class = (spec for spec in load_specs() if any(a in spec.architectures for a in declared))
    return [spec for spec in of_class if not _against(spec, config, tensors)]


def _against(spec: Spec, config: Mapping[str, Any], tensors: Collection[str]) -> str:
    """What speaks against this spec; empty if nothing does."""
    names = {spec.flat_name(name) for name in tensors}
    instead = any(lookup(config, key) is not None for key in spec.instead_keys)
    if not instead and not _has_its_own(spec, names):
        none = f"none of {', '.join(spec.required_tensors)} is"
        if not spec.rename:
            return f"{none} there"
        called = [*sorted(names, key=telling)[:3], *(["..."] if len(names) > 3 else [])]
        return f"{none} among its tensors, as [rename] of {spec.file} calls them ({', '.join(called)})"
    if foreign := _foreign(spec, names):
        return f"it holds {foreign[0]}"
    if spec.keys and all(lookup(config, key) is None for key in spec.keys):
        return f"config.json has no {' or '.join(spec.keys)}"
    if keys := [key for key in spec.foreign_keys if lookup(config, key) is not None]:
        return f"config.json has {keys[0]}"
    return ""


def _has_its_own(spec: Spec, names: Collection[str]) -> bool:
    return any(matching(names, pattern) for pattern in spec.required_tensors)


def _foreign(spec: Spec, names: Collection[str]) -> list[str]:
    return sorted(name for pattern in spec.foreign_tensors for name in matching(names, pattern))


def needed_tensors(config: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Of a checkpoint's tensor names those that a conversion reads, in their order.

    Names alone decide, so an index is enough. Raises InputError as ``match_spec`` does.
    """
    names = list(names)
    spec = match_spec(config, names)
    ours = [name for name in names if spec.speaks_of(spec.flat_name(name))]
    return [name for name in ours if not any(fnmatchcase(spec.flat_name(name), rule.source) for rule in spec.drop)]


def shared_tensors(config: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Of a checkpoint's tensor names those of tables that may be borrowed from the target, in their order.

    Raises InputError as ``match_spec`` does.
    """
    names = list(names)
    spec = match_spec(config, names)
    there: dict[str, tuple[int, ...]] = {spec.flat_name(name): () for name in names}
    patterns = [rule.source.replace("{layer}", "*") for rule in spec.tensors if evaluate(rule.shared, {}, there)]
    return [name for name in names if any(fnmatchcase(spec.flat_name(name), pattern) for pattern in patterns)]


def choose_tensors(config: Mapping[str, Any], names: Iterable[str]) -> tuple[list[str], bool]:
    """The needed among an index's tensors, and whether the target's stand beside them (``source.checkpoint.Needs``).

    None are needed of a checkpoint of no known family: its names have told enough.
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
