"""Measure a pair and say whether the draft pays."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dspark_convert.bench import DEFAULT_MAX_TOKENS, DEFAULT_SECONDS, DEFAULT_TIMEOUT
from dspark_convert.bench.calibration import calibrate, pairs_of
from dspark_convert.bench.costs import best_of, plain_step, setting_cost
from dspark_convert.bench.counts import Diagnosis, acceptance_of, diagnose
from dspark_convert.bench.prompts import Prompt, built_in
from dspark_convert.bench.records import Setting, Turn, read_turns
from dspark_convert.bench.report import BenchReport, MachinePart, PairPart
from dspark_convert.bench.verdict import flags_of, judge_speed
from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error
from dspark_convert.pair.llama import spec_type
from dspark_convert.runtime.guard import run_job
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.precheck import precheck
from dspark_convert.runtime.shape import DraftShape
from dspark_convert.runtime.validation import memory_limit

WORKER = ("-P", "-m", "dspark_convert.bench.worker")

#: confidence thresholds that are tried with the whole block
P_MINS = (0.2, 0.4, 0.6, 0.8)


def bench(
    draft: Path,
    target: Path,
    *,
    lib: Path | None = None,
    prompts: Sequence[Prompt] | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    seconds: float = DEFAULT_SECONDS,
    timeout: float = DEFAULT_TIMEOUT,
    threads: int | None = None,
    memory: int | None = None,
    exact: bool = False,
    sweep: bool = True,
    on_phase: Callable[[str], None] = lambda _phase: None,
) -> BenchReport:
    """Decode ``prompts`` (the built-in ones if None) in turns, plainly and with the draft.

    After ``seconds`` no further turn is begun; after ``timeout`` seconds all is stopped. ``exact``: compute as
    dspark-validate does, not as llama.cpp does by default. ``sweep``: try other settings too. ``memory`` in bytes.
    Raises InputError for files that cannot be used or do not run, EnvironmentFault without a library that runs them.
    """
    checks, shape = precheck(draft, target)
    if shape is None:
        failed = next(check for check in checks if check.status == "fail")
        raise InputError(f"{draft} cannot be measured with {target}: {failed.detail.rstrip('.')}.")
    library = find_library(lib)
    asked = built_in() if prompts is None else list(prompts)
    job = {
        "library": str(library.path),
        "target": str(target.resolve()),
        "draft": str(draft.resolve()),
        "shape": asdict(shape),
        "prompts": [prompt.text for prompt in asked],
        "max_tokens": max_tokens,
        "seconds": seconds,
        "exact": exact,
        "threads": threads,
        "memory": memory_limit((draft, target)) if memory is None else memory,
        "sweep": sweep_settings(shape) if sweep else [],
    }
    outcome = run_job(job, timeout=timeout, on_phase=on_phase, arguments=WORKER)
    if outcome.result is None:
        raise InputError(f"the pair could not be measured: {outcome.fault.rstrip('.')}.")
    measured = outcome.result
    turns = read_turns(measured, [prompt.kind for prompt in asked])
    pair = pair_part(turns, shape)
    machine = machine_part(turns, Setting(shape.drafts_per_block))
    return BenchReport(
        library={
            "path": str(library.path),
            "source": library.source,
            **{key: measured[key] for key in ("model_params", "context_params", "injection")},
        },
        draft={
            "path": str(draft),
            "target": str(target),
            "kind": shape.kind,
            "block_size": shape.block_size,
            "drafts_per_block": shape.drafts_per_block,
            "has_confidence_head": shape.has_confidence_head,
        },
        conditions=_conditions(measured, turns, job),
        pair=pair,
        machine=machine,
        command=command_line(draft, target, shape, machine.best.setting if machine.best else None),
        findings=findings_of(pair.diagnosis, shape, draft),
    )


def sweep_settings(shape: DraftShape) -> list[Setting]:
    """Every number of proposals, then, with a confidence head, the thresholds at the whole block."""
    whole = shape.drafts_per_block
    thresholds = P_MINS if shape.has_confidence_head else ()
    return [*(Setting(n) for n in range(1, whole + 1)), *(Setting(whole, p_min) for p_min in thresholds)]


def pair_part(turns: Sequence[Turn], shape: DraftShape) -> PairPart:
    """From the turns of the whole block alone, so that it does not depend on how long the sweep could run."""
    whole = Setting(shape.drafts_per_block)
    counted = [turn for turn in turns if not turn.sweep]
    kinds = dict.fromkeys(turn.kind for turn in counted)
    acceptance = acceptance_of(counted, whole)
    return PairPart(
        acceptance=acceptance,
        kinds={kind: acceptance_of([turn for turn in counted if turn.kind == kind], whole) for kind in kinds},
        calibration=calibrate(pairs_of(counted, whole)),
        diagnosis=diagnose(acceptance, shape.kind),
        texts=len(counted),
        same_texts=sum(turn.texts[whole] == turn.tokens for turn in counted),
    )


def machine_part(turns: Sequence[Turn], whole: Setting) -> MachinePart:
    """Settings are compared on the same turns: those of the sweep, or without one those of the whole block."""
    compared = [turn for turn in turns if turn.sweep] or turns
    tried = sorted({setting for turn in compared for setting in turn.rounds})
    costs = [cost for setting in tried if (cost := setting_cost(compared, setting))]
    return MachinePart(
        plain=plain_step(turns),
        n_max=[cost for cost in costs if not cost.setting.p_min],
        p_min=[cost for cost in costs if cost.setting.n_max == whole.n_max],
        best=best_of(costs),
        verdict=judge_speed(costs, whole),
    )


def findings_of(diagnosis: Diagnosis, shape: DraftShape, draft: Path) -> list[Finding]:
    """What is wrong with the pair, as far as acceptance tells."""
    fix = f"run dspark-validate {shlex.quote(str(draft))} with --reference DIR, which compares it with its checkpoint"
    if diagnosis.shape == "nothing":
        return [error("acceptance-floor", str(draft), f"{diagnosis.text}.", fix)]
    if diagnosis.shape == "falls" and shape.kind == "dspark":
        return [error("acceptance-falls", str(draft), f"{diagnosis.text}.", fix)]
    return []


def command_line(draft: Path, target: Path, shape: DraftShape, best: Setting | None) -> str:
    """llama-server with the best setting; the whole block if none was measured."""
    flags = flags_of(best or Setting(shape.drafts_per_block))
    files = f"-m {shlex.quote(str(target))} --spec-draft-model {shlex.quote(str(draft))}"
    return f"llama-server {files} --spec-type {spec_type(shape.kind)} {flags}"


def _conditions(measured: Mapping[str, Any], turns: Sequence[Turn], job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "decoding": "greedy",
        "exact": job["exact"],
        "threads": measured["threads"],
        "max_tokens": job["max_tokens"],
        "prompts": len(job["prompts"]),
        "prompts_measured": sum(not turn.sweep for turn in turns),
        "sweep": bool(job["sweep"]),
        "prompts_swept": sum(turn.sweep for turn in turns),
    }
