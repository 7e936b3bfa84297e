"""What a checkpoint lacks, in as few sentences as say it: a layer, the heads, an expert's matrix."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from dspark_convert.findings import Finding, error
from dspark_convert.specs.load import Spec
from dspark_convert.specs.places import Place

#: of one kind, so many are named one by one
NAMED = 20
FETCH = "fetch the whole checkpoint"


@dataclass(frozen=True)
class Missing:
    """``name`` is one source of ``place``, number ``expert`` of a stack; ``scale`` lies there without it."""

    place: Place
    name: str
    expert: int | None
    scale: str | None


def name_some(names: list[str]) -> tuple[list[str], list[str]]:
    """Those to name one by one, and those to count (none, or at least two)."""
    return (names, []) if len(names) <= NAMED + 1 else (names[:NAMED], names[NAMED:])


def tell_missing(spec: Spec, n_layer: int, missing: list[Missing], present: Collection[str]) -> list[Finding]:
    """``present``: the flat names of all tensors that are there."""
    findings = []
    rest = missing
    for lost, finding in (*_layers(spec, n_layer, missing, present), *_ends(spec, n_layer, missing, present)):
        if any(item in rest for item in lost):
            findings.append(finding)
            rest = [item for item in rest if item not in lost]
    named, more = name_some([item.name for item in rest])
    for item in rest[: len(named)]:
        findings.append(error("tensor-missing", item.name, _sentence(spec, item), FETCH))
    if more:
        message = f"{len(more)} further tensors are missing, {more[-1]} among them."
        findings.append(error("tensor-missing", more[0], message, FETCH))
    return findings


def _sentence(spec: Spec, item: Missing) -> str:
    if item.scale is not None:
        return f"tensor {item.name} is missing, although its scale {item.scale} is there."
    if item.expert is None:
        return f"tensor {item.name} is missing."
    of = f" of {spec.layer_name} {item.place.layer}" if item.place.layer is not None else ""
    part = item.name.rsplit(f".{item.expert}.", 1)[-1].removesuffix(".weight")
    return f"expert {item.expert}{of} has no {part}: tensor {item.name} is missing."


def _layers(
    spec: Spec, n_layer: int, missing: list[Missing], present: Collection[str]
) -> Iterator[tuple[list[Missing], Finding]]:
    """Layers of which nothing is there, where naming each tensor would be a long list."""
    start = next((rule.source.split("{layer}")[0] for rule in spec.tensors if rule.per_layer), "")
    by_layer: dict[int, list[Missing]] = {}
    for item in missing:
        if item.place.layer is not None:
            by_layer.setdefault(item.place.layer, []).append(item)
    for layer, lost in by_layer.items():
        prefix = f"{start}{layer}."
        if len(lost) > NAMED + 1 and not any(name.startswith(prefix) for name in present):
            message = f"{spec.layer_name} {layer} of {n_layer} is missing: there is no tensor {prefix}*."
            yield lost, error("tensor-missing", f"{prefix}*", message, FETCH)


def _ends(
    spec: Spec, n_layer: int, missing: list[Missing], present: Collection[str]
) -> Iterator[tuple[list[Missing], Finding]]:
    """The tensors that only the first or the last layer has, where none is there: half of a draft."""
    for end, layer in (("first", 0), ("last", n_layer - 1)):
        lost = [item for item in missing if item.place.rule.only == end]
        rules = [rule for rule in spec.tensors if rule.only == end]
        if len(lost) < 2 or any(rule.source.replace("{layer}", str(layer)) in present for rule in rules):
            continue
        where = f"{spec.layer_name} {layer}"
        message = (
            f"{where} holds nothing that the {end} {spec.layer_name} has ({lost[0].name} and {len(lost) - 1} more)"
        )
        if end == "last":
            message += f": the checkpoint ends before the last {spec.layer_name}"
        yield lost, error("tensor-missing", lost[0].name, f"{message}.", FETCH)
