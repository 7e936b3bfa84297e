"""How commands end: exit codes and streams, seen from outside in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_convert import __version__

COMMAND = """
import errno, os, sys, time
from typing import Annotated
import typer
from dspark_convert.cli.runner import VersionFlag, run
from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.findings import error

def command(what: str, json: bool = False, version: VersionFlag = False) -> int | None:
    "Do WHAT."
    if what == "input":
        raise InputError("Bad \\x1b file.", findings=[error("a-rule", "fc", "is bad", "mend it")])
    if what == "usage":
        raise UsageError("No.")
    if what == "environment":
        raise EnvironmentFault("No library.")
    if what == "full":
        raise OSError(errno.ENOSPC, "No space left on device", "out.gguf")
    if what == "bug":
        raise KeyError("oops")
    if what == "one":
        return 1
    if what == "exit":
        raise typer.Exit(3)
    if what == "open":
        print(os.open(os.devnull, os.O_RDONLY) > 2, file=sys.stderr)
        print("result")
    if what == "flood":
        for _ in range(100000):
            print("x" * 100)
    if what == "wait":
        try:
            print("ready", flush=True)
            time.sleep(60)
        finally:
            print("cleaned", file=sys.stderr)
    return None

run(command, "dspark-test")
"""


def in_shell(tmp_path: Path, line: str, **env: str) -> tuple[int, str, str]:
    """``line`` run by sh, in which COMMAND is this file's command."""
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    line = line.replace("COMMAND", shlex.join([sys.executable, str(script)]))
    process = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env={**os.environ, **env}, timeout=30)
    return process.returncode, process.stdout, process.stderr


def launch(tmp_path: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    return subprocess.Popen(
        [sys.executable, str(script), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


def ended(tmp_path: Path, *args: str, **env: str) -> tuple[int, str, str]:
    process = launch(tmp_path, *args, **env)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("fine", 0, ""),
        ("one", 1, ""),
        ("exit", 3, ""),
        ("usage", 2, "error: No.\n"),
        ("environment", 4, "error: No library.\n"),
        ("full", 4, "error: out.gguf: No space left on device.\n"),
        ("input", 3, "error: fc: is bad [a-rule]\n  fix: mend it\nerror: Bad \\x1b file.\n"),
    ],
)
def test_exit_codes_and_messages(tmp_path: Path, what: str, code: int, message: str) -> None:
    assert ended(tmp_path, what) == (code, "", message)


def test_an_error_under_json_is_json_too(tmp_path: Path) -> None:
    code, out, err = ended(tmp_path, "input", "--json")
    assert code == 3
    assert "error: Bad" in err
    assert json.loads(out) == {
        "schema": "dspark-test/1",
        "error": {"message": "Bad \x1b file.", "exit_code": 3},
        "findings": [{"rule": "a-rule", "severity": "error", "where": "fc", "message": "is bad", "fix": "mend it"}],
    }


@pytest.mark.parametrize("args", [(), ("fine", "--no-such-option"), ("fine", "two")])
def test_usage_errors(tmp_path: Path, args: tuple[str, ...]) -> None:
    code, out, err = ended(tmp_path, *args)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.endswith("; see dspark-test --help.\n")
    assert err.count("\n") == 1


def test_an_unexpected_fault_asks_for_a_report(tmp_path: Path) -> None:
    code, out, err = ended(tmp_path, "bug")
    assert (code, out) == (70, "")
    assert "KeyError: 'oops'" in err
    assert "Traceback" not in err
    assert "Traceback" in ended(tmp_path, "bug", DSPARK_DEBUG="1")[2]


def test_version_and_help(tmp_path: Path) -> None:
    assert ended(tmp_path, "--version") == (0, f"{__version__}\n", "")
    code, out, err = ended(tmp_path, "-h")
    assert (code, err) == (0, "")
    assert "Do WHAT." in out


@pytest.mark.parametrize(
    ("signum", "code", "message"),
    [(signal.SIGINT, 130, "cleaned\ninterrupted\n"), (signal.SIGTERM, 143, "cleaned\n")],
)
def test_signals_clean_up_first(tmp_path: Path, signum: int, code: int, message: str) -> None:
    process = launch(tmp_path, "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, message)


def test_a_closed_pipe_is_no_fault(tmp_path: Path) -> None:
    process = launch(tmp_path, "flood")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=30) == 141


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault_and_no_file_takes_their_place(tmp_path: Path, closed: str) -> None:
    code, out, err = in_shell(tmp_path, f"COMMAND open {closed}")
    assert code == 0
    assert out == ("" if " >&-" in f" {closed}" else "result\n")
    assert err == ("" if "2>&-" in closed else "True\n")
    assert in_shell(tmp_path, f"COMMAND input --json {closed}")[0] == 3


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_the_streams(tmp_path: Path, unbuffered: str) -> None:
    code, _, err = in_shell(tmp_path, "COMMAND open >/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert code == 4
    assert "No space left on device" in err
    assert "Traceback" not in err
    code, _, err = in_shell(tmp_path, "COMMAND input --json >/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert code in {3, 4}
    assert err.startswith("error: fc: is bad [a-rule]\n")
    assert "Traceback" not in err
    assert in_shell(tmp_path, "COMMAND input 2>/dev/full")[0] == 3
