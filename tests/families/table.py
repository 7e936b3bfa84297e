"""The README's table of families, made of what ``python -m tests.families`` wrote down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dspark_convert.specs.load import load_specs

#: fixtures that are another case of their family, in words
VARIANTS = {
    "markov_gated": "gated Markov head",
    "markov_rnn": "recurrent Markov head",
    "specforge_gated": "gated Markov head",
    "zlab_gpt_oss": "attention biases",
}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """One row a family, of all its fixtures that convert together, and one for each case that is refused."""
    lines = [
        "| family | converts | parity, at every position | drafts losslessly | since |",
        "| --- | --- | --- | --- | --- |",
    ]
    for spec in load_specs():
        found = {name: entry for name, entry in results.items() if entry["spec"] == spec.name}
        good = [entry for entry in found.values() if not entry["refused"]]
        if good:
            lines.append(_row(spec.title, good))
        if not found:
            lines.append(f"| {spec.title} | no: {spec.unsupported[0]} | | | |")
        for name, entry in found.items():
            if entry["refused"]:
                variant = f", {VARIANTS[name]}" if name in VARIANTS else ""
                lines.append(f"| {spec.title}{variant} | no: {_reason(entry['refused'])} | | | |")
    return "\n".join(lines) + "\n"


def _row(title: str, entries: list[Mapping[str, Any]]) -> str:
    worst = max(entry["relative"] or 0.0 for entry in entries)
    parity = "no" if any(entry["failed"] for entry in entries) else f"{worst:.0e}"
    lossless = "yes" if all(entry["lossless"] for entry in entries) else "no"
    since = [entry["since"] for entry in entries]
    return f"| {title} | yes | {parity} | {lossless} | {max(map(str, since)) if all(since) else ''} |"


def _reason(message: str) -> str:
    """The part of a refusal that says why."""
    return message.rsplit(": ", 1)[-1].rstrip(".").replace("|", "\\|")
