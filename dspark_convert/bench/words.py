"""Sentences that the screen and the page share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dspark_convert.bench.report import BenchReport, PairPart
from dspark_convert.bench.verdict import DOES_NOT_PAY
from dspark_convert.draft import KINDS

PAIR_HEADING = "The pair: greedy acceptance, the same on every machine (but for near-ties)"


def heading_of(report: BenchReport) -> str:
    """Which files, and what kind of draft."""
    draft = report.draft
    names = f"{Path(draft['path']).name} with {Path(draft['target']).name}"
    return f"{names}: {KINDS[draft['kind']]}, {draft['drafts_per_block']} proposals a round"


def mean_length(pair: PairPart) -> str:
    return f"Mean accepted length: {pair.acceptance.mean_accepted_length:.2f} tokens a round."


def same_texts(pair: PairPart) -> str:
    return f"{pair.same_texts} of {pair.texts} texts with the draft equal those without."


def machine_heading(report: BenchReport) -> str:
    """What the speeds hold for."""
    threads = report.conditions["threads"]
    how = "F32 cache, no flash attention" if report.conditions["exact"] else "llama.cpp's default arithmetic"
    return f"This machine: speed with {threads} thread{'s' if threads > 1 else ''}, {how}"


def command_heading(report: BenchReport) -> str:
    """Above the command; a draft that does not pay is not recommended."""
    return "To try it all the same" if report.machine.verdict.startswith(DOES_NOT_PAY) else "Run it with"


def limits_of(conditions: Mapping[str, Any]) -> list[str]:
    """What was left out because time ran out, or was not asked for."""
    prompts, measured, swept = (conditions[key] for key in ("prompts", "prompts_measured", "prompts_swept"))
    if measured < prompts:
        return [
            f"Time ran out: {measured} of {prompts} prompts were decoded, no settings tried; allow more with --time."
        ]
    if not conditions["sweep"]:
        return ["Other settings were not tried (--no-sweep)."]
    if swept < prompts:
        return [f"Time ran out: settings were tried on {swept} of {prompts} prompts; allow more with --time."]
    return []
