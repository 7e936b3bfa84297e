"""How dspark-inspect looks: one screen, colour on a terminal alone, many findings in few lines."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from dspark_convert.cli.findings_view import tally
from dspark_convert.findings import error, info, warning
from tests.draft_file import BOOL, HIDDEN, STRING, U32, DraftFile

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*args: str | Path, columns: int = 80, **environment: str) -> str:
    """What dspark-inspect prints on a terminal of so many columns."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-c", "from dspark_convert.cli.inspect import main; main()", *map(str, args)]
    process = subprocess.Popen(command, stdout=child, env=env | {"TERM": "xterm"} | environment)
    os.close(child)
    shown = b""
    while chunk := _read(parent):
        shown += chunk
    os.close(parent)
    process.wait(timeout=30)
    return shown.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux' way to say that the other end is closed
        return b""


def bad(path: Path) -> Path:
    """A file with 200 faults of two kinds and one of a third."""
    file = DraftFile()
    for layer in range(2, 102):
        file.tensors[f"blk.{layer}.ffn_up.weight"] = ("F32", (HIDDEN, 1))
        for name in ("attn_norm", "attn_q", "attn_k", "attn_output", "attn_q_norm", "attn_k_norm"):
            file.tensors[f"blk.{layer}.{name}.weight"] = ("F32", (3, 3))
    file.kv["dflash.block_count"] = (U32, 102, None)
    file.kv["dflash.final_logit_softcapping"] = (6, 30.0, None)
    return file.write(path)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return DraftFile().write(tmp_path / "dspark-tiny.gguf")


def test_colour_on_a_terminal_alone(good: Path) -> None:
    coloured = on_terminal(good)
    assert coloured.startswith("\x1b[1m")
    assert "\x1b[32mNothing wrong was found.\x1b[0m" in coloured
    plain = on_terminal(good, NO_COLOR="1")
    assert "\x1b" not in plain
    assert COLOUR.sub("", coloured) == plain
    assert on_terminal(good, TERM="dumb") == plain


def test_a_good_draft_takes_one_screen(good: Path) -> None:
    lines = on_terminal(good, NO_COLOR="1").splitlines()
    assert len(lines) <= 24
    assert len(on_terminal(good, columns=120, NO_COLOR="1").splitlines()) <= len(lines)


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_nothing_but_the_command_is_wider_than_the_terminal(tmp_path: Path, columns: int) -> None:
    file = DraftFile()
    file.kv["dflash.has_confidence_head"] = (BOOL, False, None)
    file.tensors["token_embd.weight"] = ("F32", (HIDDEN, 80))
    path = file.write(tmp_path / "x.gguf")
    for line in on_terminal(path, columns=columns, NO_COLOR="1").splitlines()[1:]:
        assert len(line) <= columns or line.startswith("  dspark-convert"), line


def test_many_findings_take_few_lines_and_a_pipe_gets_all(tmp_path: Path) -> None:
    path = bad(tmp_path / "dspark-bad.gguf")
    shown = on_terminal(path, NO_COLOR="1")
    findings = shown[shown.index("Findings: ") :]
    assert len(findings.splitlines()) < 30
    assert re.search(r"^error: tensor-shape, \d\d\d times$", findings, re.MULTILINE)
    assert re.search(r"^  - and \d+ more, which --json lists$", findings, re.MULTILINE)
    assert findings.index("\nerror: ") < findings.index("\nwarning: ")
    command = [sys.executable, "-c", "from dspark_convert.cli.inspect import main; main()", str(path)]
    piped = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    shapes = [line for line in piped.splitlines() if line.endswith("[tensor-shape]")]
    times = re.search(r"tensor-shape, (\d+) times", findings)
    assert times is not None
    assert len(shapes) == int(times[1]) > 100


def test_tally() -> None:
    found = [info("a", "b", "c."), error("a", "b", "c."), error("a", "b", "c."), warning("a", "b", "c.")]
    assert tally(found) == "2 errors, 1 warning, 1 info"
    assert tally(found[:1] * 1200) == "1,200 infos"


def test_a_strangers_rule_place_and_message_are_escaped_in_groups(tmp_path: Path) -> None:
    file = DraftFile()
    for number in range(3):
        file.kv[f"general.{number}\x1b[2J"] = (STRING, "\u202e", None)
        file.tensors[f"\x1b[2J{number}"] = ("F32", (3,))
    shown = on_terminal(file.write(tmp_path / "dspark-x.gguf"), NO_COLOR="1")
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown
