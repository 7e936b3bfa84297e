"""Puts real output into README.md and the pages of docs/: a fenced block behind ``<!-- output: COMMAND -->`` holds what
COMMAND printed, and the README's tables between ``<!-- benchmarks -->`` and ``<!-- families -->`` marks what
``benchmarks/results.json`` and ``tests/families/results.json`` say.

    python docs/readme.py        run every block of every page, and write the outputs anew
    python docs/readme.py DIR    make the directory DIR in which the pages' commands run, and stop there

Every page's blocks run in its own copy of that directory, from the top down. Blocks of ``sh`` are run, of ``python``
are run by pytest, of ``toml``, ``json`` and ``yaml`` are parsed. ``<!-- not run: REASON -->`` before a block of ``sh``
leaves it out; so do the README's ``<!-- main command -->`` and ``<!-- test command -->``, which its tests run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n+)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
BENCHMARKS = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- /benchmarks -->)", re.DOTALL)
FAMILIES = re.compile(r"(<!-- families -->\n).*?(<!-- /families -->)", re.DOTALL)
#: what ``_cut`` shows the beginning of: tables of everything, and times, which differ from run to run
LONG = ("\nMetadata\n", "\nThis machine")
PROGRAMS = Path(sys.executable).parent


class Block(NamedTuple):
    mark: str
    kind: str
    body: str


def blocks(text: str) -> Iterator[Block]:
    for found in BLOCK.finditer(text):
        yield Block(found["mark"] or "", found["kind"], found["body"])


def workplace(root: Path) -> None:
    """Lay out what the pages' commands name, in the empty directory ``root``."""
    from fixtures.deepseek4 import make_deepseek4
    from fixtures.deepseek4_gguf import write_deepseek4_gguf

    for path in (ROOT / "fixtures" / "pair").iterdir():
        (shutil.copytree if path.is_dir() else shutil.copy)(path, root / path.name)
    shutil.copytree(root / "draft", root / "broken")
    config = root / "broken" / "config.json"
    mistakes = {"mask_token_id": 99999, "target_layer_ids": [0, 1], "sliding_windw": 64}
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | mistakes), "utf-8")
    # the small pair stands in for the published one
    shutil.copytree(root / "draft", root / "dspark_qwen3_8b_block7")
    shutil.copytree(root / "target", root / "Qwen3-8B")
    make_deepseek4(root / "DeepSeek-V4-Tiny")
    write_deepseek4_gguf(root / "DeepSeek-V4-Tiny", root / "DeepSeek-V4-Tiny.gguf")
    run("dspark-convert draft --target-gguf target.gguf -o draft.gguf -q", root)
    run("dspark-convert draft --target-gguf target.gguf --dialect dspark -o old.gguf -q", root)
    run("dspark-convert DeepSeek-V4-Tiny -o v4.gguf -q", root)


def environment(root: Path) -> dict[str, str]:
    """Programs of this Python first, lines of 100 columns, and no cache but one in ``root``."""
    path = os.pathsep.join([str(PROGRAMS), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "XDG_CACHE_HOME": str(root / ".cache")}


def run(script: str, root: Path) -> None:
    """Run a block of shell commands, each of which has to succeed."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],  # noqa: S607 - a reader's own shell
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env=environment(root),
    )
    if done.returncode:
        raise RuntimeError(f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")


def output(command: str, root: Path) -> str:
    """The command with what it prints, stderr behind stdout, as one console block."""
    program, *arguments = command.split()
    done = subprocess.run(
        [PROGRAMS / program, *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env=environment(root),
    )
    printed = re.sub(r"/\S*(?=/site-packages/)", "…", done.stdout + done.stderr)
    lines = [line.rstrip() for line in printed.splitlines()]
    if done.returncode:
        lines.append(f"(exit code {done.returncode})")
    return "\n".join([f"$ {command}", *lines, ""])


def render(text: str, root: Path) -> str:
    """``text`` with every output block and both tables made anew; its other blocks are run in ``root``."""
    from benchmarks.results import summary
    from tests.families.table import table

    def anew(found: re.Match[str]) -> str:
        block = Block(found["mark"] or "", found["kind"], found["body"])
        if not block.mark.startswith("output: "):
            follow(block, root)
            return found[0]
        start, end = (position - found.start() for position in found.span("body"))
        return found[0][:start] + _cut(output(block.mark.removeprefix("output: "), root)) + found[0][end:]

    text = BLOCK.sub(anew, text)
    measured = json.loads((ROOT / "benchmarks" / "results.json").read_text("utf-8"))
    text = BENCHMARKS.sub(lambda m: f"{m[1]}{summary(measured)}{m[2]}", text)
    proved = json.loads((ROOT / "tests" / "families" / "results.json").read_text("utf-8"))
    return FAMILIES.sub(lambda m: f"{m[1]}{table(proved)}{m[2]}", text)


def follow(block: Block, root: Path) -> None:
    """Do with a block what a reader would."""
    if block.kind == "sh" and not block.mark:
        run(block.body, root)
    elif block.kind == "python":
        (root / "test_page.py").write_text(block.body, "utf-8")
        run("python -m pytest -q -p no:cacheprovider test_page.py", root)
    elif block.kind == "toml":
        tomllib.loads(block.body)
    elif block.kind == "json":
        json.loads(block.body)
    elif block.kind == "yaml":
        import yaml

        yaml.safe_load(block.body)


def _cut(text: str) -> str:
    """A page shows where the long parts begin, not all of them."""
    for start in LONG:
        head, found, _ = text.partition(start)
        if found:
            return head + "\n…\n"
    return text


def main(arguments: list[str]) -> None:
    sys.path.insert(0, str(ROOT))  # for benchmarks, fixtures and tests, which are not installed
    if arguments:
        place = Path(arguments[0])
        if place.exists():
            sys.exit(f"{place} exists already; name a directory to be made.")
        place.mkdir(parents=True)
        workplace(place)
        return
    with tempfile.TemporaryDirectory() as temporary:
        master = Path(temporary, "master")
        master.mkdir()
        workplace(master)
        for number, page in enumerate(PAGES):
            place = shutil.copytree(master, Path(temporary, str(number)))
            page.write_text(render(page.read_text("utf-8"), place), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
