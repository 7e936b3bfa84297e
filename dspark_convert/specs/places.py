"""Where a spec's tensors go for one draft: names, shapes and how many sources, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dspark_convert.ggufio.types import MAX_EXPERTS
from dspark_convert.jobs import Source
from dspark_convert.specs.formula import NoValueError, evaluate
from dspark_convert.specs.load import Spec, TensorRule


@dataclass(frozen=True)
class Place:
    """One tensor that the output needs: ``sources`` to stack, one or a whole layer's experts.

    ``shape`` is that of one source, row-major as it means (FP4 codes counted singly); ``columns``
    the length of the rows as written. None where a size is not known. ``read``: how those
    sources that are there are read, once they were looked at.
    """

    rule: TensorRule
    sources: tuple[str, ...]
    gguf: str
    layer: int | None
    shape: tuple[int, ...] | None
    columns: int | None
    shared: bool = False
    read: tuple[Source, ...] = ()

    @property
    def optional(self) -> bool:
        """Whether it may be missing; of one that other drafts share with their target, only where this one does."""
        return self.rule.optional and (self.shared or self.rule.shared == "False")

    @property
    def source(self) -> str:
        """The first of the sources, which names the place in messages."""
        return self.sources[0]


def expand(spec: Spec, known: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[Place, bool]]:
    """Every tensor that the spec speaks of for this draft, and whether it belongs into it.

    Where a size is unknown (a field is missing or bad) ``shape`` is None and the tensor counts
    as wanted if it is there.
    """
    layers = known.get("n_layer", 0)
    for per_layer, group in groupby(spec.tensors, key=lambda rule: rule.per_layer):
        rules = list(group)
        for layer in range(layers) if per_layer else [None]:
            for rule in rules:
                if rule.only is None or layer == (0 if rule.only == "first" else layers - 1):
                    yield _place(rule, layer, known, shapes)


def _place(
    rule: TensorRule, layer: int | None, known: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Place, bool]:
    source, gguf = rule.source.replace("{layer}", str(layer)), rule.gguf.replace("{layer}", str(layer))
    sources: tuple[str, ...] = (source,)
    try:
        if rule.stack:
            stacked = min(evaluate(rule.stack, known, shapes), MAX_EXPERTS)
            sources = tuple(source.replace("{expert}", str(i)) for i in range(stacked))
        wanted = bool(evaluate(rule.when, known, shapes))
    except NoValueError:
        if rule.stack:  # their number is bad: those that are there
            named = (source.replace("{expert}", str(i)) for i in range(MAX_EXPERTS))
            sources = tuple(name for name in named if name in shapes) or (source.replace("{expert}", "0"),)
        wanted = sources[0] in shapes
    shared = bool(evaluate(rule.shared, {}, shapes))
    try:
        shape = tuple(evaluate(axis, known, shapes) for axis in rule.shape)
        columns = evaluate(rule.gguf_columns, known, shapes) if rule.gguf_columns else shape[-1]
    except NoValueError:
        return Place(rule, sources, gguf, layer, None, None, shared), wanted
    return Place(rule, sources, gguf, layer, shape, columns, shared), wanted
