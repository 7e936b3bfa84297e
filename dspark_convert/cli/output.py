"""The one sink of every command: results to stdout, everything else to stderr.

A command is a plain function that builds an ``Output`` and is started by ``run`` (cli/runner.py).
Nothing here colours text unless it goes to a terminal and NO_COLOR is unset, and whatever a file
says is escaped before it is printed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from dspark_convert.cli.progress import progress
from dspark_convert.cli.text import abridged, safe, safe_lines
from dspark_convert.document import plain
from dspark_convert.findings import Finding, Severity

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: order in which findings are told, and the ANSI colour of each severity word
SEVERITY_COLOURS: dict[Severity, str] = {"error": "1;31", "warning": "1;33", "info": "1;36"}

#: lists so short are not broken over lines; ``safe`` leaves none of the character that holds them together
BRACKETED = re.compile(r"\[[^\[\]]{1,30}\]")
NO_BREAK = "\xa0"

#: of the names of fields
NAME_COLOUR = "36"

#: characters of a finding's place that are printed
WHERE_WIDTH = 200

#: characters of a name or a cell of a table: longer than any in a published file
CELL_WIDTH = 120
#: of a cell that is a sentence
SENTENCE_WIDTH = 1000

#: items of a list that are encoded as one
JSON_BATCH = 1 << 16

#: a table that does not go to a terminal is not wrapped, so that grep finds whole lines
UNWRAPPED_WIDTH = 10_000


def coloured(stream: IO[str], code: str, text: str) -> str:
    """``text`` in an ANSI colour if ``stream`` is a terminal that wants colour."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def print_json(obj: Any) -> None:
    """Write ``obj`` to stdout as one ASCII document; key order is kept.

    Objects and lists of objects stand a member a line, other lists on one line: that is easier on
    the eyes, and lets json's C code write a vocabulary, one array at a time.
    """
    _write_json(obj, sys.stdout.write, "\n")
    sys.stdout.write("\n")


def json_text(obj: Any) -> str:
    """As ``print_json`` writes it."""
    parts: list[str] = []
    _write_json(obj, parts.append, "\n")
    return "".join(parts) + "\n"


def _write_json(value: Any, write: Callable[[str], object], newline: str) -> None:
    if hasattr(value, "tolist") and not isinstance(value, Sequence):
        value = value.tolist()
    inner = newline + "  "
    if isinstance(value, Mapping) and value:
        for index, (key, item) in enumerate(value.items()):
            write(f"{',' if index else '{'}{inner}{_encoded(str(key))}: ")
            _write_json(item, write, inner)
        write(newline + "}")
    elif not _is_list(value):
        write(_encoded(value))
    elif value and (isinstance(value[0], Mapping) or _is_list(value[0])):
        for index, item in enumerate(value):
            write(("," if index else "[") + inner)
            _write_json(item, write, inner)
        write(newline + "]")
    else:
        # A lazy list of a stranger's file can have any length: never all of its items at once.
        left = iter(value)
        separator = "["
        while batch := list(islice(left, JSON_BATCH)):
            write(separator + _encoded(batch)[1:-1])
            separator = ", "
        write("]" if value else "[]")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _encoded(value: Any) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(plain(value))
    # What a file says may not command the program that runs a CI job either: see cli/text.py.
    return text.replace("##", r"\u0023#")


def print_findings(findings: Sequence[Finding], stream: IO[str]) -> None:
    """One finding a line, worst first, with its remedy indented below."""
    for severity, colour in SEVERITY_COLOURS.items():
        for finding in findings:
            if finding.severity != severity:
                continue
            word = coloured(stream, colour, severity)
            # Most messages name the place themselves.
            where = "" if finding.where in finding.message else f"{abridged(finding.where, WHERE_WIDTH)}: "
            line = f"{word}: {where}{abridged(finding.message.rstrip('.'))} [{safe(finding.rule)}]"
            print(line, file=stream)
            if finding.fix:
                print(f"  fix: {safe(finding.fix)}", file=stream)


def wrapped(text: str, head: str, indent: int | None = None) -> list[str]:
    """``text`` behind ``head``, on a terminal wrapped and indented below it (by the head's length unless said)."""
    indent = len(head) if indent is None else indent
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNWRAPPED_WIDTH
    # Without a look at the length textwrap would cost more than all else.
    if indent + len(text) <= width:
        return [head + text]
    kept = BRACKETED.sub(lambda found: found[0].replace(" ", NO_BREAK), text)
    lines = textwrap.wrap(kept, max(width - indent, 20), break_on_hyphens=False) or [""]
    # What stood in the middle of a line may command a CI job at the start of one.
    below = (safe(" " * indent + line.replace(NO_BREAK, " ")) for line in lines[1:])
    return [head + lines[0].replace(NO_BREAK, " "), *below]


class Output:
    """Where a command sends its results, notes, findings and progress."""

    def __init__(self, json: bool = False, quiet: bool = False) -> None:
        self.json_wanted = json
        self.quiet = quiet

    def human(self, *renderables: RenderableType) -> None:
        """Results for a reader, to stdout; nothing with --json or --quiet.

        Strings may hold line breaks; other control characters in them are escaped. The text
        inside other rich renderables must have gone through ``safe``.
        """
        if self.json_wanted or self.quiet:
            return
        for renderable in renderables:
            if isinstance(renderable, str):
                print(safe_lines(renderable))
            else:
                self._console().print(renderable)

    def line(self, text: str, colour: str = "") -> None:
        """One line of results that is escaped already, to stdout; nothing with --json or --quiet."""
        if not (self.json_wanted or self.quiet):
            print(coloured(sys.stdout, colour, text) if colour else text)

    def table(
        self, headers: Sequence[str], rows: Sequence[Sequence[Any]], *, right: str = "", limit: int = CELL_WIDTH
    ) -> None:
        """A table, to stdout; ``right`` names the headers (comma-separated) set flush right.

        Cells are cut at ``limit`` characters: where they are sentences of this program, not names out of a file,
        give room for the sentence.
        """
        if self.json_wanted or self.quiet:
            return
        from rich.table import Table
        from rich.text import Text

        # no rule under the heads: it would be as wide as the longest line
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
        numeric = set(right.split(","))
        for header in headers:
            table.add_column(Text(header), justify="right" if header in numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(abridged(str(cell), limit)) for cell in row))
        console = self._console()
        with console.capture() as captured:
            console.print(table)
        print("\n".join(safe(line.rstrip()) for line in captured.get().splitlines()))

    def fields(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Name and value a line, values aligned and on a terminal wrapped, names in colour, to stdout."""
        if self.json_wanted or self.quiet or not pairs:
            return
        # One long name would push the values of all others that far.
        told = [(abridged(name, CELL_WIDTH), value) for name, value in pairs]
        indent = max(len(name) for name, _ in told) + 2
        for name, value in told:
            head = coloured(sys.stdout, NAME_COLOUR, name) + " " * (indent - len(name))
            print("\n".join(wrapped(abridged(str(value)), head, indent)))

    def json(self, obj: Any) -> None:
        """The result as one JSON document, to stdout, if --json was given. Call it once, last."""
        if self.json_wanted:
            print_json(obj)

    def note(self, text: str) -> None:
        """A remark on what happens, to stderr unless --quiet."""
        if not self.quiet:
            print(safe_lines(text), file=sys.stderr)

    def findings(self, findings: Sequence[Finding], *, result: bool = False) -> None:
        """The findings for a reader: on stdout if they are the ``result``, else on stderr.

        With --quiet only errors are told, and only on stderr.
        """
        if self.quiet:
            print_findings([f for f in findings if f.severity == "error"], sys.stderr)
        elif not result:
            print_findings(findings, sys.stderr)
        elif not self.json_wanted:
            print_findings(findings, sys.stdout)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        """How far a task of ``total`` bytes is, on stderr: a bar on a terminal, else a plain line now and then.

        Yields a function that takes the bytes just done; several threads may call it. Silent with --quiet, for a
        total of 0 and for what takes a moment only.
        """
        if self.quiet or total <= 0:
            yield lambda _done: None
            return
        with progress(label, total, sys.stderr) as advance:
            yield advance

    @staticmethod
    def _console() -> Console:
        from rich.console import Console

        width = None if sys.stdout.isatty() else UNWRAPPED_WIDTH
        return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)
