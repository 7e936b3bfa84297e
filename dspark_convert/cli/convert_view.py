"""What dspark-convert shows and prints as JSON: its plan, the file that it wrote, the memory that this takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_convert.cli.describe import server_line
from dspark_convert.cli.memory import memory_line
from dspark_convert.cli.output import Output
from dspark_convert.cli.sources import source_names, source_text
from dspark_convert.cli.text import safe
from dspark_convert.findings import Finding
from dspark_convert.memory import Memory, estimate

if TYPE_CHECKING:
    from dspark_convert.convert import Prepared
    from dspark_convert.runtime.report import ValidationReport
    from dspark_convert.source.hub import Survey
    from dspark_convert.writing.writer import Written


def document(
    prepared: Prepared,
    findings: Sequence[Finding],
    result: Written | None,
    report: ValidationReport | None,
    ctx: int | None,
) -> dict[str, Any]:
    plan = prepared.plan
    memory = _memory(prepared, ctx)
    return {
        "schema": "dspark-convert/1",
        "plan": {
            "metadata": {kv.key: kv.value for kv in plan.metadata},
            "tensors": [
                {
                    "name": job.name,
                    "type": job.type.name,
                    "shape": list(job.shape),
                    "bytes": job.nbytes,
                    "sources": source_names(job),
                }
                for job in plan.tensors
            ],
        },
        "findings": [finding.to_json() for finding in findings],
        "output": None if result is None else result.to_json(),
        "validation": None if report is None else report.to_json(),
        "memory": None if memory is None else memory.to_json(),
    }


def _memory(prepared: Prepared, ctx: int | None) -> Memory | None:
    plan = prepared.plan
    if plan.draft is None:
        return None
    return estimate(plan.draft, ((job.type.name, job.nbytes) for job in plan.tensors), ctx)


def show_plan(out: Output, prepared: Prepared, ctx: int | None) -> None:
    plan = prepared.plan
    if prepared.survey is not None:
        _show_shards(out, prepared.survey)
    rows = [
        (
            job.name,
            job.type.name,
            " x ".join(map(str, job.shape)),
            f"{job.nbytes:,}",
            source_text(job),
        )
        for job in plan.tensors
    ]
    out.table(("tensor", "type", "shape", "bytes", "from"), rows, right="bytes")
    total = sum(job.nbytes for job in plan.tensors)
    name = safe(str(prepared.path or "no file: there is no target to take a tokenizer from"))
    out.human(f"\n{len(plan.tensors)} tensors, {total:,} bytes of data, {len(plan.metadata)} key/values -> {name}")
    _show_memory(out, prepared, ctx)


def _show_memory(out: Output, prepared: Prepared, ctx: int | None) -> None:
    memory = _memory(prepared, ctx)
    if memory is not None:
        out.human(f"Memory: {memory_line(memory)}")


def _show_losses(out: Output, prepared: Prepared, result: Written) -> None:
    """What a port's rounding cost, tensor by tensor."""
    if not result.losses:
        return
    sources = {job.name: job.source.dtype for job in prepared.plan.tensors if job.source is not None}
    types = {job.name: job.type.name for job in prepared.plan.tensors}
    rows = [
        (name, sources[name], types[name], f"{loss.relative_rms:.3g}", f"{loss.max_abs:.3g}")
        for name, loss in result.losses.items()
    ]
    out.table(("tensor", "from", "to", "relative RMS", "largest change"), rows, right="relative RMS,largest change")
    out.human("")


def _show_shards(out: Output, survey: Survey) -> None:
    """The files of a repository that a conversion reads, and how much of each."""
    if not survey.shards:
        return
    cached = survey.cached
    rows = []
    for file in survey.files:
        of = [shard for shard in survey.shards if shard.file == file]
        needed, held = sum(shard.nbytes for shard in of), sum(cached[shard.name] for shard in of)
        rows.append((file, f"{of[0].size:,}", f"{needed:,}", f"{held:,}"))
    out.table(("shard", "bytes", "needed", "in the cache"), rows, right="bytes,needed,in the cache")
    out.human("")


def show_result(out: Output, prepared: Prepared, result: Written, target: Path | None, ctx: int | None) -> None:
    plan = prepared.plan
    _show_losses(out, prepared, result)
    files = f" in {len(result.files)} files" if len(result.files) > 1 else ""
    size = f"{result.nbytes:,} bytes{files}"
    out.human(f"{safe(str(result.path))}: {size}, {len(plan.tensors)} tensors, {plan.label}")
    _show_memory(out, prepared, ctx)
    if plan.draft is not None and plan.dialect == "dflash":
        line = server_line(plan.draft, result.path, target or Path("TARGET.gguf"))
        out.human(f"Run it with\n  {line}")
