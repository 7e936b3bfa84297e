"""What the checks found, as data and as the document of ``dspark-check --json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dspark_convert.check.checks import Step

#: error: the step could not be made, and says nothing about the draft; skip: a step before it ended the case
Status = Literal["pass", "fail", "error", "skip"]


@dataclass(frozen=True)
class StepResult:
    """``reasons``: sentences and lines of a diff, why it did not pass. ``exit_code``: of an error, what to end with."""

    step: Step
    status: Status
    seconds: float = 0.0
    reasons: tuple[str, ...] = ()
    exit_code: int = 0


@dataclass(frozen=True)
class Result:
    """One case. ``output``: the converted file, where it was kept."""

    name: str
    outtype: str
    steps: tuple[StepResult, ...]
    cached: bool = False
    output: Path | None = None

    @property
    def status(self) -> Status:
        told = {step.status for step in self.steps}
        return "error" if "error" in told else "fail" if "fail" in told else "pass"

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)

    @property
    def reasons(self) -> list[str]:
        """Each with the step that told it."""
        return [f"{step.step}: {reason}" for step in self.steps for reason in step.reasons]

    def step(self, name: Step) -> StepResult | None:
        return next((step for step in self.steps if step.step == name), None)

    def to_json(self) -> dict[str, Any]:
        steps = [
            {"name": s.step, "status": s.status, "seconds": s.seconds, "reasons": list(s.reasons)} for s in self.steps
        ]
        return {
            "name": self.name,
            "outtype": self.outtype,
            "status": self.status,
            "cached": self.cached,
            "seconds": self.seconds,
            "output": None if self.output is None else str(self.output),
            "steps": steps,
        }


def from_json(document: Any) -> Result:
    """A cached result; raises KeyError, TypeError or ValueError for anything else."""
    steps = tuple(
        StepResult(s["name"], s["status"], float(s["seconds"]), tuple(s["reasons"])) for s in document["steps"]
    )
    return replace(Result(document["name"], document["outtype"], steps), cached=True)


def exit_code(results: Sequence[Result]) -> int:
    """0: all passed; 1: a draft is wrong; else what kept a step from being made."""
    if any(result.status == "fail" for result in results):
        return 1
    return max((step.exit_code for result in results for step in result.steps), default=0)


def summary(results: Sequence[Result]) -> str:
    """ "3 checks: 1 passed, 2 failed"."""
    counts = Counter(result.status for result in results)
    words = {"pass": "passed", "fail": "failed", "error": "could not be made"}
    told = ", ".join(f"{counts[status]} {word}" for status, word in words.items() if counts[status])  # type: ignore[index]
    cached = sum(result.cached for result in results)
    return f"{len(results)} {'check' if len(results) == 1 else 'checks'}: {told}" + (
        f" ({cached} cached)" if cached else ""
    )


def document(path: Path, results: Sequence[Result]) -> dict[str, Any]:
    """The ``dspark-check/1`` document."""
    return {
        "schema": "dspark-check/1",
        "file": str(path),
        "passed": exit_code(results) == 0,
        "checks": [result.to_json() for result in results],
    }
