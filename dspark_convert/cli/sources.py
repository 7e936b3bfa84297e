"""Where a planned tensor comes from, in few words: of a layer's experts that is hundreds of names."""

from __future__ import annotations

from dspark_convert.jobs import TensorJob
from dspark_convert.words import count_up


def source_text(job: TensorJob) -> str:
    """For a table: "a.0 … 7.w1.weight", "embed_tokens.weight, a row of mask_embedding.pt"; empty for zeros."""
    if job.transform == "literal":
        return "the config"
    names = [source.values.name for source in job.sources]
    if span := count_up(names):
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
    span = count_up(names)
    return ["{}{{{}..{}}}{}".format(*span)] if span else names
