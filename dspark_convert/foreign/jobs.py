"""Tensor jobs under the names, and in the types, of other layouts than mainline's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info
from dspark_convert.foreign.keys import WITH_MAINLINE
from dspark_convert.ggufio.layouts import dialect_name, layout_named
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import TensorJob
from dspark_convert.specs.policy import fitting
from dspark_convert.words import listed

#: ends the names of the matrices that are most of a draft with experts
EXPERTS = "_exps.weight"

#: names shown of a list
SHOWN_NAMES = 4


def jobs_in_dialect(dialect: str, draft: Draft, jobs: Sequence[TensorJob]) -> tuple[list[TensorJob], list[Finding]]:
    """``jobs``, which have mainline's names, as layout ``dialect`` takes them; what it cannot hold is an error."""
    layout = layout_named(dialect)
    if layout.is_mainline:
        return list(jobs), []
    names = {job.name: dialect_name(dialect, job.name, draft.n_layer) for job in jobs}
    homeless = [name for name, other in names.items() if other is None]
    findings = []
    if homeless:
        title = layout.title.partition(" (")[0]
        message = f"{title} is not written: it has no place for {listed(homeless, SHOWN_NAMES)}."
        findings.append(error("dialect", homeless[0], message, WITH_MAINLINE))
    made, changed, refused = [], [], []
    for job in jobs:
        kind, takes = job.type, layout.takes(job.name)
        if takes and kind not in takes:
            # Wider without loss, or as fine as the layout has them; experts are too much to choose for.
            kind = GGMLType.F32 if kind is GGMLType.BF16 else fitting(GGMLType.Q8_0, job.shape[0])
            if job.name.endswith(EXPERTS) or kind not in takes:
                refused.append(job)
            else:
                changed.append(f"{job.name} ({job.type.name}) is {kind.name}")
        made.append(replace(job, name=names[job.name] or job.name, type=kind))
    if changed:
        message = f"{layout.runs_on} does not take all types: {listed(changed, SHOWN_NAMES)}."
        findings.append(info("layout-types", changed[0].split(" ", 1)[0], message))
    if refused:
        told = [f"{job.name} ({job.type.name})" for job in refused]
        types = ", ".join(kind.name for kind in layout.takes(refused[0].name))
        message = f"{layout.runs_on} takes {types} only: {listed(told, SHOWN_NAMES)}."
        findings.append(error("layout-types", refused[0].name, message, "choose another type: --experts or --outtype"))
    return made, findings
