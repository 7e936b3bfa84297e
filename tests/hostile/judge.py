"""Look at one file with everything that ``dspark-inspect`` does with it, and hold it to what may come out."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

from dspark_convert.cli.describe import meaning_fields, run_command, value_text
from dspark_convert.cli.output import print_findings
from dspark_convert.cli.text import abridged, safe
from dspark_convert.document import plain
from dspark_convert.errors import DsparkError
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.inspection import Inspection, inspect_file

#: bytes of what is printed of a file of some ten thousand bytes
MOST_TEXT = 500_000


class Wrong(Exception):
    """The program did what it never may."""


@dataclass(frozen=True)
class Outcome:
    """``sound``: the reader itself has nothing against the file. ``told``: rules or the error, a line each."""

    ended: str
    sound: bool
    told: str


def judge(path: Path, *, deep: bool = False, document: bool = False) -> Outcome:
    """Inspect the file; raises Wrong (or whatever the code raises) if anything but an answer comes."""
    try:
        inspection = inspect_file(path, deep=deep)
    except DsparkError as fault:
        told = _require_message(str(fault), path)
        return _without_draft(path, told)
    _require_visible(inspection)
    if document:
        json.dumps(plain(inspection.to_json()), allow_nan=False)
    told = "\n".join(f"[{f.rule}] {f.where} {f.message}" for f in inspection.findings)
    return Outcome("draft" if inspection.draft else "no draft", _sound(told), told)


#: rules of the reader that are errors: what ggml is expected to refuse
READER_RULES = (
    "bad-utf8",
    "nested-array",
    "duplicate-key",
    "tensor-",
    "zero-dimension",
    "broken-block",
    "unknown-tensor-type",
    "removed-tensor-type",
    "truncated",
    "split-file",
)
#: not of the reader, though they begin alike
OTHER_RULES = ("tensor-missing", "tensor-unexpected", "tensor-shape", "tensor-type")


def _sound(told: str) -> bool:
    rules = {line[1:].split("]", 1)[0] for line in told.splitlines() if line.startswith("[")}
    return not any(rule.startswith(READER_RULES) and rule not in OTHER_RULES for rule in rules)


def _without_draft(path: Path, told: str) -> Outcome:
    """It was refused: by the reader, or only because it is no draft?"""
    try:
        with open_gguf(path) as file:
            for key in file.metadata:
                file.kv(key)
            found = [f for f in file.findings if f.severity == "error"]
            for tensor in file.tensors:
                if file.holds(tensor) and len(file.data(tensor)) != tensor.nbytes:
                    raise Wrong(f"{tensor} has other data")
            order = "\n[big-endian]" if file.byte_order == "big" else ""
            return Outcome("other", not found, "\n".join([told, *(f"[{f.rule}] {f.message}" for f in found)]) + order)
    except DsparkError as fault:
        return Outcome("refused", False, _require_message(str(fault), path))


def _require_message(message: str, path: Path) -> str:
    shown = abridged(message)
    if str(path.parent) not in message or not message.endswith(".") or not shown.isprintable():
        raise Wrong(f"this is no message: {message!r}")
    return message


def _require_visible(inspection: Inspection) -> None:
    """All that the command would print is text on its own line."""
    findings = io.StringIO()
    print_findings(inspection.findings, findings)
    lines = findings.getvalue().split("\n")
    lines += [f"{safe(name)} {safe(text)}" for name, text in meaning_fields(inspection)]
    lines += [run_command(inspection)]
    lines += [f"{safe(key)} {value_text(value)}" for key, value in inspection.metadata.items()]
    lines += [f"{safe(row.name)} {row.type} {row.shape}" for row in inspection.tensors]
    for line in lines:
        if not line.isprintable() or line.lstrip().startswith("::") or "##[" in line:
            raise Wrong(f"this is printed: {line!r}")
    if sum(map(len, lines)) > MOST_TEXT:
        raise Wrong(f"{sum(map(len, lines)):,} characters are printed")
