"""Look at one file with everything that ``dspark-inspect`` does with it, and hold it to what may come out."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from dspark_convert.cli.output import Output
from dspark_convert.cli.text import abridged
from dspark_convert.cli.view import show
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


def judge(path: Path, *, deep: bool = False, shown: bool = True) -> Outcome:
    """Inspect the file, and with ``shown`` print all of it; raises Wrong if anything but an answer comes.

    What the code raises beside DsparkError comes through.
    """
    try:
        inspection = inspect_file(path, deep=deep)
    except DsparkError as fault:
        told = _require_message(str(fault), path)
        return _without_draft(path, told)
    if shown:
        _require_visible(inspection)
        json.dumps(plain(inspection.to_json()), allow_nan=False)
    told = "\n".join(f"{f.severity} [{f.rule}] {f.where} {f.message}" for f in inspection.findings)
    return Outcome("draft" if inspection.draft else "no draft", _sound(told), told)


#: rules of the reader that are errors: what ggml is expected to refuse
READER_RULES = (
    "bad-utf8",
    "embedded-nul",
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
    rules = set(re.findall(r"^error \[([a-z0-9-]+)\]", told, re.MULTILINE))
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
            order = "\nerror [big-endian]" if file.byte_order == "big" else ""
            return Outcome(
                "other", not found, "\n".join([told, *(f"error [{f.rule}] {f.message}" for f in found)]) + order
            )
    except DsparkError as fault:
        return Outcome("refused", False, _require_message(str(fault), path))


def _require_message(message: str, path: Path) -> str:
    shown = abridged(message)
    if str(path.parent) not in message or not message.endswith(".") or not shown.isprintable():
        raise Wrong(f"this is no message: {message!r}")
    return message


def _require_visible(inspection: Inspection) -> None:
    """All that the command prints is text, and no line is a command to the program that runs a CI job."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        show(Output(), inspection, None, (), metadata=True, origins=True, tensors=True)
    text = printed.getvalue()
    if len(text) > MOST_TEXT:
        raise Wrong(f"{len(text):,} characters are printed")
    for line in text.split("\n"):
        if not line.isprintable() or line.lstrip().startswith("::") or re.search(r"##[A-Za-z]*\[", line):
            raise Wrong(f"this is printed: {line!r}")
