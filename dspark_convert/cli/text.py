"""Make strings that come out of files safe to print."""

from __future__ import annotations

import re

#: what the programs that run CI jobs take for a command to them in a line of output: at its start (GitHub), or
#: anywhere (older GitHub, Azure, TeamCity)
_CI_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#[A-Za-z]*\[)")


def safe(text: str, limit: int | None = None) -> str:
    """``text`` with everything that is not plainly visible written as an escape.

    Control characters, terminal escapes, line breaks, bidirectional and zero-width controls and
    lone surrogates become ``\\x1b``, ``\\n``, ``\\u202e``, …: a name in a stranger's file can
    neither drive the terminal nor forge a line of output. Nor can it command the program that runs
    a CI job: of ``::set-output`` and ``##[error]`` the first character is escaped. Text longer than
    ``limit`` is cut and its length told.
    """
    if limit is not None and len(text) > limit:
        return f"{safe(text[:limit])}… ({len(text):,} characters)"
    if "::" in text or "##" in text:
        text = _CI_COMMAND.sub(lambda match: match[1] + r"\x3a" if match[1] is not None else r"\x23", text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def abridged(text: str, limit: int = 1000) -> str:
    """``safe``, with the middle of what is longer than ``limit`` left out: a name in a stranger's
    file can have any length, and what a message says about it stands at its end."""
    if len(text) <= limit:
        return safe(text)
    tail = limit // 3
    return f"{safe(text[: limit - tail])}…{safe(text[-tail:])} ({len(text):,} characters)"


def safe_lines(text: str) -> str:
    """As ``safe``, but line breaks stay: for text whose lines this program laid out itself."""
    return "\n".join(safe(line) for line in text.split("\n"))


def human_bytes(count: int) -> str:
    """``count`` bytes in decimal units, as file managers and hubs show them: "1.29 GB"."""
    if count < 1000:
        return f"{count} B"
    size = float(count)
    for unit in ("kB", "MB", "GB", "TB", "PB"):
        size /= 1000
        if size < 999.5 or unit == "PB":
            break
    return f"{size:.3g} {unit}"
