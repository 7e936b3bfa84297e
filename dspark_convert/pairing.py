"""Inspect a draft, wherever it lies, and hold it against a target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_convert.inspection import Inspection, inspect_hub_file, inspect_plan
from dspark_convert.pair.fit import PAIR_RULES, Fit, compare, judge_file
from dspark_convert.pair.remarks import judge_remarks
from dspark_convert.pair.vocabulary import judge_tokens, tokenizer_of, tokenizer_of_directory, tokenizer_of_target

if TYPE_CHECKING:
    from dspark_convert.plan import Plan
    from dspark_convert.source.hub import Sink
    from dspark_convert.source.hub_id import HubId
    from dspark_convert.target import Target


def inspect_elsewhere(
    path: Path, named: tuple[HubId, str | None] | None, target: Target | None, sink: Sink
) -> tuple[Inspection, Fit | None]:
    """Inspect a checkpoint directory, or what ``named`` means on the hub, by headers alone.

    Raises as ``inspect_directory``, ``remote.find_gguf`` and ``inspect_hub_file`` do.
    """
    from dspark_convert.convert import is_in_target
    from dspark_convert.plan import plan_for_directory

    if named is None:
        inspection, fit = pair_plan(path, plan_for_directory(path, target), target, path)
        return replace(inspection, in_target=is_in_target(path, None)), fit
    from dspark_convert.remote import find_gguf, plan_for_survey, survey_repository

    repository, file = find_gguf(*named, sink)
    if file is not None:
        beside = target.path if target is not None and target.is_gguf else None
        return pair_file(inspect_hub_file(repository, file, sink, beside), target)
    survey = survey_repository(repository, sink)
    root = survey.directory or repository.cache.snapshot
    label = Path(str(repository.id))
    inspection, fit = pair_plan(label, plan_for_survey(survey, target), target, root)
    return replace(inspection, in_target=is_in_target(label, survey)), fit


def pair_file(inspection: Inspection, target: Target | None) -> tuple[Inspection, Fit | None]:
    """A GGUF that was inspected, with the findings on the pair if there is a target."""
    if target is None:
        return inspection, None
    draft, metadata = inspection.draft, inspection.metadata
    wanted = tokenizer_of_target(target)
    found = judge_file(draft, metadata, target, wanted) if draft is not None else []
    fit = compare(draft, metadata, target, found, tokenizer_of(metadata), wanted, broken=bool(inspection.errors))
    return replace(inspection, findings=(*inspection.findings, *found)), fit


def pair_plan(path: Path, plan: Plan, target: Target | None, root: Path) -> tuple[Inspection, Fit | None]:
    """A checkpoint by the plan of its conversion with ``target``; ``root``: where its small files lie."""
    inspection = inspect_plan(path, plan)
    if target is None:
        return inspection, None
    draft = plan.draft
    # A whole plan holds the target's tokenizer already, and a large one takes a while to read.
    written = "tokenizer.ggml.tokens" in inspection.metadata
    wanted = tokenizer_of(inspection.metadata) if written else tokenizer_of_target(target)
    own = tokenizer_of_directory(root, target.vocab_size)
    names = [name] if (name := _base_model(root)) else []
    found = []
    if draft is not None:
        found += judge_tokens(own, wanted, target)
        found += judge_remarks(draft, None, target, wanted, names)
    on_pair = [*(finding for finding in inspection.findings if finding.rule in PAIR_RULES), *found]
    # A target without a tokenizer is no fault of the draft.
    broken = any(finding.rule not in (*PAIR_RULES, "tokenizer") for finding in inspection.errors)
    fit = compare(draft, inspection.metadata, target, on_pair, own, wanted, "(the target's)", broken)
    return replace(inspection, findings=(*inspection.findings, *found)), fit


def _base_model(root: Path) -> str | None:
    from dspark_convert.source.provenance import provenance

    return provenance(root, {}).base_model
