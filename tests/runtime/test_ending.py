"""dspark-validate stopped from outside, at any time: the right exit code, one word, and no process left."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.validation import validate
from tests.libraries.impostor import compile_impostor
from tests.runtime.pairs import PairFiles

SECONDS = 60.0

#: holds the pipe's end open and never comes back, with Python's lock in its hands
HANG = 'int fd = open("{pipe}", O_WRONLY); dprintf(fd, "%d\\n", getpid()); for (;;) ;'


class Hanging:
    """A library that hangs while it is loaded, and says in which process."""

    def __init__(self, directory: Path) -> None:
        pipe = directory / "pipe"
        os.mkfifo(pipe)
        self._end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.path = compile_impostor(directory / "libllama.so", on_load=HANG.format(pipe=pipe))

    def _read(self) -> bytes:
        assert select.select([self._end], [], [], SECONDS)[0], "nothing happened"
        return os.read(self._end, 100)

    def wait_until_loading(self) -> int:
        """The process that hangs."""
        return int(self._read())

    def wait_until_dead(self) -> None:
        assert self._read() == b""


@pytest.fixture
def hanging(tmp_path: Path) -> Hanging:
    return Hanging(tmp_path)


def command(pair: PairFiles, library: Path) -> list[str]:
    code = "from dspark_convert.cli.validate import main; main()"
    files = [str(pair.draft), "--target", str(pair.target), "--lib", str(library)]
    return [sys.executable, "-c", code, *files]


def test_ctrl_c_at_a_terminal(random_pair: PairFiles, hanging: Hanging) -> None:
    process, terminal = pty.fork()
    if process == 0:
        arguments = command(random_pair, hanging.path)
        os.execv(arguments[0], arguments)  # noqa: S606
    hanging.wait_until_loading()
    os.write(terminal, b"\x03")
    hanging.wait_until_dead()
    shown = _drain(terminal)
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert "loading the library" in shown
    assert shown.rstrip().endswith("interrupted")
    assert "Traceback" not in shown


def _drain(terminal: int) -> str:
    data = b""
    try:
        while piece := os.read(terminal, 10_000):
            data += piece
    except OSError:  # how Linux says that the other side has closed
        pass
    return data.decode()


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGKILL", -9)])
def test_signals_to_the_command(random_pair: PairFiles, hanging: Hanging, name: str, code: int) -> None:
    with subprocess.Popen(command(random_pair, hanging.path), stderr=subprocess.PIPE) as process:
        hanging.wait_until_loading()
        process.send_signal(signal.Signals[name])
        hanging.wait_until_dead()
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert b"Traceback" not in said


PHASES = (
    "loading the library",
    "loading the target",
    "loading the draft",
    "creating the contexts",
    "probing how the draft takes the target's features",
    "decoding prompt 1 of 2",
    "decoding prompt 2 of 2",
)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The children that the guard starts."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(real(*args, **options))
        return started[-1]

    monkeypatch.setattr("dspark_convert.runtime.guard.subprocess.Popen", start)
    return started


@pytest.mark.parametrize("phase", PHASES)
def test_child_killed_in_any_phase(random_pair: PairFiles, children: list[subprocess.Popen[bytes]], phase: str) -> None:
    told: list[str] = []

    def kill(reached: str) -> None:
        told.append(reached)
        if reached == phase:
            children[0].send_signal(signal.SIGSTOP)  # or it might be done before the other arrives
            children[0].send_signal(signal.SIGKILL)

    def run() -> ValidationReport:
        prompts = ["the small boat", "once upon a time"]
        return validate(
            random_pair.draft, random_pair.target, prompts=prompts, max_tokens=24, timeout=60, on_phase=kill
        )

    words = "while {}, the system killed llama.cpp (SIGKILL): most likely the memory ran out."
    try:
        failed = [check for check in run().checks if check.status == "fail"]
    except EnvironmentFault as fault:
        assert phase == told[-1] == PHASES[0]
        assert str(fault).endswith(words.format(told[-1]))
        return
    assert phase in told
    # On a busy machine the child may tell of the next phase before the signal arrives.
    assert told[-1] in PHASES[PHASES.index(phase) :]
    assert [check.detail for check in failed] == [words.format(told[-1])]
    assert failed[0].name == ("load" if told[-1] in PHASES[:4] else "drafting")


def test_two_at_once(bigram_pair: PairFiles) -> None:
    """They share nothing: no file, no port, no lock."""
    code = "from dspark_convert.cli.validate import main; main()"
    arguments = [sys.executable, "-c", code, str(bigram_pair.draft), "--target", str(bigram_pair.target), "--quiet"]
    runs = [subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
    for run in runs:
        said, _ = run.communicate(timeout=SECONDS)
        assert (run.returncode, said) == (0, b"")
