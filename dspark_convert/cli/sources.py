"""Where a planned tensor comes from, in few words: of a layer's experts that is hundreds of names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dspark_convert.jobs import TensorJob


def source_text(job: TensorJob) -> str:
    """For a table: "a.0 … 7.w1.weight", "embed_tokens.weight, a row of mask_embedding.pt"; empty for zeros."""
    if job.transform == "literal":
        return "the config"
    names = [source.values.name for source in job.sources]
    if span := _span(names):
        return "{}{} … {}{}".format(*span)
    text = names[0] + (f" and {len(names) - 1} more" if names[1:] else "") if names else ""
    return text if job.patch is None else f"{text}, a row of {job.patch.name}"


def source_names(job: TensorJob) -> list[str]:
    """For JSON, those of the values, then those of their scales: "a.{0..7}.b" stands for a.0.b to a.7.b, in order."""
    values = [source.values for source in job.inputs]
    scales, factors = ([getattr(source, of) for source in job.sources] for of in ("scales", "tensor_scale"))
    found = ([ref.name for ref in refs if ref is not None] for refs in (values, scales, factors))
    return [name for names in found for name in _short(names)]


def _short(names: list[str]) -> list[str]:
    span = _span(names)
    return ["{}{{{}..{}}}{}".format(*span)] if span else names


def _span(names: Sequence[str]) -> tuple[str, str, str, str] | None:
    """What is before the number, the first number, the last, and what is after; None if the names are no such row."""
    if len(names) < 2:
        return None
    first, second = (re.split(r"(\d+)", name) for name in names[:2])
    places = [i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b]
    if len(places) != 1 or not first[places[0]].isdecimal():
        return None
    before, after = "".join(first[: places[0]]), "".join(first[places[0] + 1 :])
    start = int(first[places[0]])
    if any(name != f"{before}{start + i}{after}" for i, name in enumerate(names)):
        return None
    return before, str(start), str(start + len(names) - 1), after
