"""Runs one case, step by step, up to the first that does not pass; each step is a command of ours in a child."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from dspark_convert.check.checks import STEPS, Case, Step
from dspark_convert.check.children import Children, Ended
from dspark_convert.check.expectations import judge_draft, judge_findings, judge_plan, judge_validation
from dspark_convert.check.planning import request_of
from dspark_convert.check.results import Result, StepResult
from dspark_convert.errors import DsparkError
from dspark_convert.words import listed

COMMANDS = "dspark_convert.cli"
#: differences to a golden file that are told by name
TOLD = 6


class Unable(Exception):
    """The step cannot be made, for a reason that is not the draft's."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


@dataclass
class Work:
    """A case at work: ``directory`` takes its file, ``file`` is the one to look at (None before it is written)."""

    case: Case
    children: Children
    directory: Path
    file: Path | None = None
    lib: Path | None = None

    @property
    def seen(self) -> Path:
        """The file, else the checkpoint."""
        return self.file or self.case.check.source

    def call(self, command: str, *arguments: str | Path) -> Ended:
        """Run one of our commands with --json."""
        return self.children.run(f"{COMMANDS}.{command}", [*map(str, arguments), "--json"], self.directory)


def run_case(case: Case, children: Children, directory: Path, lib: Path | None = None) -> Result:
    """``directory`` exists and is empty; a converted file is left there. ``lib``: the llama.cpp library to use.

    Raises Stopped.
    """
    source = case.check.source
    work = Work(case, children, directory, source if not case.check.is_checkpoint else None, lib)
    results: list[StepResult] = []
    for step in (step for step in STEPS if step in case.check.steps):
        if any(result.status != "pass" for result in results):
            results.append(StepResult(step, "skip"))
            continue
        start = time.monotonic()
        try:
            reasons, failure, code = RUN[step](work), "fail", 0
        except Unable as fault:
            reasons, failure, code = [str(fault)], "error", fault.exit_code
        except DsparkError as fault:  # a golden plan that is none
            reasons, failure, code = [str(fault)], "error", fault.exit_code
        seconds = time.monotonic() - start
        if not reasons:
            results.append(StepResult(step, "pass", seconds))
        elif failure == "fail":
            results.append(StepResult(step, "fail", seconds, tuple(reasons)))
        else:
            results.append(StepResult(step, "error", seconds, tuple(reasons), code))
    output = work.file if work.file is not None and work.file.is_relative_to(directory) else None
    return Result(case.check.name, case.outtype, tuple(results), output=output)


def _plan(work: Work) -> list[str]:
    request = dumps(request_of(work.case))
    ended = work.children.run("dspark_convert.check.planning", [request], work.directory)
    return judge_plan(work.case, ended.document) if ended.code == 0 and ended.document else _failed(work, ended)


def _convert(work: Work) -> list[str]:
    check = work.case.check
    request = request_of(work.case)
    target = ["--target-model-dir", request["target_dir"]] if request["target_dir"] else []
    target += ["--target-gguf", request["target_gguf"]] if request["target_gguf"] else []
    types = [
        "--outtype",
        work.case.outtype,
        "--experts",
        check.experts,
        *(["--dequantize"] if check.dequantize else []),
    ]
    layout = ["--dialect", check.dialect, "--shared-tensors", check.shared_tensors]
    ended = work.call("convert", check.source, *target, *types, *layout, "-o", work.directory, "--force")
    if ended.code != 0 or not ended.document:
        return _failed(work, ended)
    work.file = Path(ended.document["output"]["path"])
    return list(judge_findings(ended.document["findings"], check.expected))


def _inspect(work: Work) -> list[str]:
    check = work.case.check
    target = check.target or check.target_gguf
    beside: list[str | Path] = ["--target", target] if target is not None else []
    deep = ["--deep"] if work.seen.is_absolute() else []
    ended = work.call("inspect", work.seen, *beside, *deep)
    if ended.code not in (0, 1) or not ended.document:
        return _failed(work, ended)
    reasons = list(judge_findings(ended.document["findings"], check.expected))
    tensors = ended.document["tensors"]
    nbytes = sum(tensor["bytes"] for tensor in tensors)
    reasons += judge_draft(check.expected, ended.document["draft"], len(tensors), nbytes)
    return reasons or (["the draft does not fit the target."] if ended.code else [])


def _validate(work: Work) -> list[str]:
    check = work.case.check
    options: list[str | Path] = []
    for flag, value in (("--reference", check.reference), ("--prompts", check.prompts), ("--lib", work.lib)):
        options += [flag, value] if value is not None else []
    assert check.target_gguf is not None  # noqa: S101 - seen to when it was read
    ended = work.call("validate", work.seen, "--target", check.target_gguf, *options)
    if ended.code not in (0, 1) or not ended.document:
        return _failed(work, ended)
    return judge_validation(check.expected, ended.document)


def _diff(work: Work) -> list[str]:
    golden = work.case.golden
    assert golden is not None  # noqa: S101 - seen to when it was read
    ended = work.call("inspect", work.seen, "--diff", golden, "--deep")
    if ended.code not in (0, 1) or not ended.document:
        return _failed(work, ended)
    if ended.code == 0:
        return []
    diff: Mapping[str, Any] = ended.document["diff"]
    parts = {
        "meaning": [field["field"] for field in diff["meaning"] or ()],
        "metadata": [key["key"] for key in diff["metadata"] if not key["label"]],
        "tensors": [tensor["name"] for tensor in diff["tensors"]],
        "values": [v["name"] for v in diff["values"] or () if v["judgement"] in ("different", "unread")],
    }
    told = [f"{part}: {listed(names, TOLD)}" for part, names in parts.items() if names]
    return [f"{golden.name} is another draft: {diff['summary']}.", *told]


RUN: dict[Step, Callable[[Work], list[str]]] = {
    "plan": _plan,
    "convert": _convert,
    "inspect": _inspect,
    "validate": _validate,
    "diff": _diff,
}


def _failed(work: Work, ended: Ended) -> list[str]:
    """Why a command ended without a result: with exit code 3 the input is to blame, which is what a check looks for.

    Raises Unable for everything else.
    """
    document = ended.document or {}
    message = document.get("error", {}).get("message") or ended.said or "it said nothing"
    if ended.code == 3:
        # Where findings are told, the message only counts them.
        return list(judge_findings(document.get("findings", ()), work.case.check.expected)) or [str(message)]
    if ended.code < 0:
        raise Unable(f"the command was ended by signal {-ended.code}: {message}", 4)
    raise Unable(str(message), ended.code if ended.code in (2, 4) else 4)
