"""The README tells the truth: its commands run, and its output is what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from docs.readme import ROOT, render

README = (ROOT / "README.md").read_text("utf-8")


def shape(text: str) -> str:
    """Text without what may differ from machine to machine: figures, and the widths that follow them."""
    return re.sub(r"[─ ]+", " ", re.sub(r"\d[\d.,]*", "#", text))


def command(name: str) -> str:
    found = re.search(rf"<!-- {name} command -->\n+```sh\n(.+?)\n```", README)
    assert found, name
    return found[1]


def test_output_blocks_are_current() -> None:
    assert shape(render(README)) == shape(README)


def test_main_command_ends_in_a_table_of_acceptance(tmp_path: Path) -> None:
    install, main = command("main").rsplit(" && ", 1)
    assert "-c constraints.txt" in install
    program, *arguments = main.split()
    done = subprocess.run(
        [Path(sys.executable).parent / Path(program).name, *arguments, "-o", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +\d ", line)]
    assert [int(row[0]) for row in rows] == list(range(7))
    assert float(rows[0][3]) >= 0.5
    assert float(rows[-1][3]) >= 0.2


def test_ci_runs_the_test_command() -> None:
    assert command("test").endswith("python -m tests")
    assert "README.md" in (ROOT / ".ci" / "run").read_text("utf-8")
