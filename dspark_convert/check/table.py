"""The results as rows, for the terminal and for Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dspark_convert.check.checks import STEPS
from dspark_convert.check.results import Result, StepResult, summary

#: what a cell says; words, for colours are not seen by everyone
_WORDS = {"pass": "ok", "fail": "FAIL", "error": "ERROR", "skip": "-"}
#: reasons of a case that a summary tells
TOLD = 20


def header(results: Sequence[Result]) -> list[str]:
    made = {step.step for result in results for step in result.steps}
    return ["check", "outtype", *(step for step in STEPS if step in made), "time"]


def rows(results: Sequence[Result]) -> list[list[str]]:
    steps = [step for step in STEPS if step in header(results)]
    return [
        [result.name, result.outtype, *(_word(result.step(step)) for step in steps), _time(result)]
        for result in results
    ]


def _word(step: StepResult | None) -> str:
    return "" if step is None else _WORDS[step.status]


def _time(result: Result) -> str:
    return "cached" if result.cached else f"{result.seconds:.1f} s"


def markdown(results: Sequence[Result]) -> str:
    """A summary for a page, such as $GITHUB_STEP_SUMMARY."""
    head = header(results)
    lines = [f"### {summary(results)}", "", _row(head), _row(["---"] * len(head)), *map(_row, rows(results))]
    for result in results:
        if result.status == "pass":
            continue
        lines += ["", f"**{_escaped(result.name)}**, {result.outtype}:", ""]
        lines += [f"- {_escaped(reason)}" for reason in result.reasons[:TOLD]]
        if len(result.reasons) > TOLD:
            lines.append(f"- and {len(result.reasons) - TOLD} more")
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell if cell == '---' else _escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    """What comes out of a stranger's file may be no markup."""
    visible = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return re.sub(r"([\\`*_{}\[\]<>|#@!~&:])", lambda match: f"&#{ord(match[1])};", visible)
