"""What a command takes, measured from outside: wall and processor time, resident memory, bytes read."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: between two looks at a process
POLL_SECONDS = 0.01

#: last lines of what a command that failed wrote
TOLD_LINES = 3


class Failed(Exception):
    """A command ended with another code than 0; the message has what it said last."""


@dataclass(frozen=True)
class Usage:
    """``wall`` and ``cpu`` in seconds, ``cpu`` of the process and its children; ``peak`` is the highest resident
    memory in bytes, that of children added, mapped files included; ``read`` are the bytes that its system calls read.
    """

    wall: float
    cpu: float
    peak: int
    read: int


def measure(command: Sequence[str | Path], cwd: Path, environment: Mapping[str, str] | None = None) -> Usage:
    """Run ``command`` with its output thrown away; raises Failed if it fails."""
    log = cwd / "stderr.log"
    with log.open("wb") as stderr:
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=None if environment is None else {**os.environ, **environment},
        )
        watcher = _Watcher(process.pid)
        watcher.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    watcher.finish()
    process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it
    if process.returncode:
        said = log.read_text("utf-8", "replace").strip().splitlines()[-TOLD_LINES:]
        raise Failed(f"exit code {process.returncode}: {' / '.join(said)}")
    log.unlink()
    return Usage(wall, used.ru_utime + used.ru_stime, watcher.peak, watcher.read)


class _Watcher(threading.Thread):
    """Looks at a process and its children until told that it has ended.

    ru_maxrss would do for one process, but it begins with what its parent held when it forked.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()
        self.peak = 0
        self.read = 0

    def run(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            looks = [look for pid in _family(self._pid) if (look := _look(pid))]
            self.peak = max(self.peak, sum(peak for peak, _ in looks))
            self.read = max(self.read, sum(read for _, read in looks))

    def finish(self) -> None:
        self._ended.set()
        self.join()


def _family(pid: int) -> list[int]:
    """``pid`` and its descendants."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (task / "children").read_text("ascii").split())
    return [pid, *(descendant for child in children for descendant in _family(child))]


def _look(pid: int) -> tuple[int, int] | None:
    """The peak of resident bytes and the bytes read so far; None for a process that has gone."""
    with contextlib.suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
        counters = Path(f"/proc/{pid}/io").read_text("ascii")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024, int(counters.split("rchar:")[1].split()[0])
    return None
