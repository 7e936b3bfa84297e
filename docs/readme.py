"""Puts real output into the README: each fenced block behind ``<!-- output: COMMAND -->`` is what COMMAND printed,
and the table between ``<!-- benchmarks -->`` marks what ``benchmarks/results.json`` says.

    python docs/readme.py      run the commands and write the blocks anew

The commands run in an empty directory with ``draft``, ``target``, ``target.gguf`` and ``prompts.txt``
of the fixture, and ``broken``, a copy of the draft with three mistakes in its config.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- output: (.+?) -->\n+```console\n)(.*?)(```)", re.DOTALL)
BENCHMARKS = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- /benchmarks -->)", re.DOTALL)


def workplace(root: Path) -> None:
    """Lay out what the README's commands name."""
    for path in (ROOT / "fixtures" / "pair").iterdir():
        (shutil.copytree if path.is_dir() else shutil.copy)(path, root / path.name)
    shutil.copytree(root / "draft", root / "broken")
    config = root / "broken" / "config.json"
    mistakes = {"mask_token_id": 99999, "target_layer_ids": [0, 1], "sliding_windw": 64}
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | mistakes), "utf-8")


def output(command: str, root: Path) -> str:
    """The command with what it prints, stderr behind stdout, as one console block."""
    program, *arguments = command.split()
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [Path(sys.executable).parent / program, *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    printed = re.sub(r"/\S*(?=/site-packages/)", "…", done.stdout + done.stderr)
    lines = [line.rstrip() for line in printed.splitlines()]
    if done.returncode:
        lines.append(f"(exit code {done.returncode})")
    return "\n".join([f"$ {command}", *lines, ""])


def render(text: str) -> str:
    """``text`` with every output block and the table of benchmarks made anew."""
    from benchmarks.results import summary

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        workplace(root)
        text = BLOCK.sub(lambda m: m[1] + _cut(output(m[2], root)) + m[4], text)
    measured = json.loads((ROOT / "benchmarks" / "results.json").read_text("utf-8"))
    return BENCHMARKS.sub(lambda m: f"{m[1]}{summary(measured)}{m[2]}", text)


def _cut(text: str) -> str:
    """The README shows where the tables begin, not all of them."""
    head, found, _ = text.partition("\nMetadata\n")
    return head + "\n…\n" if found else text


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # for benchmarks, which is not installed
    readme = ROOT / "README.md"
    readme.write_text(render(readme.read_text("utf-8")), "utf-8")
