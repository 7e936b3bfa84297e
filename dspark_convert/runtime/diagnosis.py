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
    "SIGBUS": "llama.cpp read beyond the end of a file (SIGBUS): a file is incomplete, or was cut short while it"
    " was in use",
    "SIGFPE": "llama.cpp divided by zero (SIGFPE): a size in the file's metadata is wrong",
    "SIGILL": "llama.cpp used an instruction that this processor does not have (SIGILL): the library was built"
    " for another one",
    "SIGKILL": "the system killed llama.cpp (SIGKILL): most likely the memory ran out",
}

#: these come from elsewhere: what llama.cpp said before has nothing to do with them
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")

_ABORT_TEXTS = (
    re.compile(re.escape(ABORT_MARK) + r"(.*)"),
    re.compile(r"(\S+: GGML_ASSERT\(.*)"),
    re.compile(r"^\s*what\(\):\s*(.*)"),
)
_COMPLAINTS = (
    re.compile(r"error loading model: (.*)"),
    # not what it prints of a model, such as "rope_finetuned = unknown"
    re.compile(r"(?:^E |: )([^:=]*\b(?:error|failed|missing|invalid|unsupported|unknown|mismatch)\b.*)"),
)

#: what builds that know no draft with tables of its own say of one: they count those too many
_TABLES_NOT_KNOWN = re.compile(r"the draft .*: wrong number of tensors; expected (\d+), got (\d+)$")
_OWN_TABLES = 2

#: what C++, Python, the loader and ggml say when they get no memory
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|MemoryError|Unable to allocate|[Cc]annot allocate memory|failed to allocate|unable to allocate"
    r"|out of memory|can't start new thread|pthread_create failed|Memory allocation still failed"
    r"|GGML_ASSERT\(ctx->mem_buffer != NULL\)"
)


def explain_memory(phase: str, lines: Iterable[str], limit: int | None) -> str:
    """One sentence if ``lines`` tell of memory that was not to be had, else nothing; ``limit`` in bytes."""
    if not any(_OUT_OF_MEMORY.search(line) for line in lines):
        return ""
    if limit is None:
        return f"while {phase}, the memory ran out."
    return (
        f"while {phase}, the memory ran out: llama.cpp may allocate {limit / 1e9:.3g} GB here; allow more with"
        " --memory, or use a machine that has more."
    )


def explain_death(code: int, phase: str, log: Iterable[str]) -> str:
    """One sentence for a child that ended with ``code`` (negative: a signal) while ``phase``."""
    lines = list(log)
    name = _signal_name(code)
    if name is None:
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
        return f"while {phase}, the process that runs llama.cpp ended with code {code}: {last}."
    what = _SIGNALS.get(name, f"the process that runs llama.cpp was ended by {name}")
    text = "" if name in _FROM_OUTSIDE else _first_match((*_ABORT_TEXTS, *_COMPLAINTS), lines)
    return f"while {phase}, {what}{': ' if text else ''}{text}."


def add_complaint(message: str, log: Iterable[str]) -> str:
    """``message`` and, if it is no whole sentence yet, what llama.cpp logged about the failure."""
    if message.endswith("."):
        return message
    text = _first_match(_COMPLAINTS, list(log))
    told = f"{message}: {text}" if text else message
    if (match := _TABLES_NOT_KNOWN.search(told)) and int(match[1]) - int(match[2]) == _OWN_TABLES:
        told += (
            "; some builds do not know embeddings and head of a draft's own: convert with --shared-tensors omit, or"
            " use a newer build"
        )
    return f"{told}."


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
                # without the directories of the machine that built the library, and without padding
                return re.sub(r"\S*/(?=[\w.-]+:\d+: )", "", " ".join(match[1].split())).rstrip(".")
    return ""
