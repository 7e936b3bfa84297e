"""What ended a child process, and what llama.cpp said about it, in words."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

#: starts the line that the child writes to stderr when an assertion of ggml fails
ABORT_MARK = "dspark-abort: "

#: signals, by name because not every system has all of them
_SIGNALS = {
    "SIGABRT": "llama.cpp stopped on an assertion of its own",
    "SIGSEGV": "llama.cpp read memory that is not its own (SIGSEGV): a damaged file, or a library that"
    " does not lay out its parameters as it seems to",
    "SIGBUS": "llama.cpp read beyond the end of a file (SIGBUS): a file was cut short while it was in use",
    "SIGFPE": "llama.cpp divided by zero (SIGFPE): a size in the file's metadata is wrong",
    "SIGILL": "llama.cpp used an instruction that this processor does not have (SIGILL): the library was built"
    " for another one",
    "SIGKILL": "the system killed llama.cpp (SIGKILL): most likely the memory ran out",
}

_ABORT_TEXTS = (
    re.compile(re.escape(ABORT_MARK) + r"(.*)"),
    re.compile(r"(\S+: GGML_ASSERT\(.*)"),
    re.compile(r"^\s*what\(\):\s*(.*)"),
)
_COMPLAINTS = (
    re.compile(r"error loading model: (.*)"),
    re.compile(r"(?:^E |: )([^:]*\b(?:error|failed|missing|invalid|unsupported|unknown|mismatch)\b.*)"),
)


def explain_death(code: int, phase: str, log: Iterable[str]) -> str:
    """One sentence for a child that ended with ``code`` (negative: a signal) while ``phase``."""
    lines = list(log)
    while_phase = f" while {phase}" if phase else ""
    name = _signal_name(code)
    if name is None:
        last = lines[-1].strip() if lines else "no message"
        return f"The process that runs llama.cpp ended{while_phase} with code {code}: {last}."
    what = _SIGNALS.get(name, f"the process that runs llama.cpp was ended by {name}")
    text = _first_match(_ABORT_TEXTS, lines) or library_complaint(lines).removeprefix(": ").rstrip(".")
    return f"{what[0].upper()}{what[1:]}{while_phase}{': ' if text else ''}{text}."


def library_complaint(log: Iterable[str]) -> str:
    """What llama.cpp logged about a failure, behind a colon; only a full stop if it logged nothing."""
    text = _first_match(_COMPLAINTS, list(log))
    return f": {text.rstrip('.')}." if text else "."


def _signal_name(code: int) -> str | None:
    if code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _first_match(patterns: Iterable[re.Pattern[str]], lines: list[str]) -> str:
    """The last match of the first pattern that matches at all."""
    for pattern in patterns:
        for line in reversed(lines):
            if match := pattern.search(line):
                return match[1].strip()
    return ""
