"""Conversions that are killed at any moment: the old output or the new one, whole, and nothing in between."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.writing import killing
from tests.writing.writing import names

ROOT = Path(__file__).parents[2]

#: bytes of a part: there are two then
SPLIT = killing.LARGE + 1_000


class Killer:
    """Conversions in ``directory``; each is followed by a look at what it has left."""

    def __init__(self, directory: Path, split: int | None) -> None:
        self.directory, self.split = directory, split
        self.order: dict[str, Any] = {"out": str(directory / "out.gguf"), "inputs": str(directory), "split": split}
        self.jobs = killing.made(directory)
        killing.convert(self.order, self.jobs)
        self.new = self.contents()
        self.outputs = sorted(name for name in self.new if name.endswith(".gguf"))
        self.old: dict[str, bytes] = {}
        for name in self.outputs:
            data = b"previous " + name.encode()
            self.old[name] = data
            self.old[f"{name}.sha256"] = f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.writing.killing"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def contents(self) -> dict[str, bytes]:
        return {name: (self.directory / name).read_bytes() for name in names(self.directory)}

    def run(self, number: int, **when: float) -> int:
        """The wait status of one conversion over the old files."""
        for name in names(self.directory):
            (self.directory / name).unlink()
        for name, data in self.old.items():
            (self.directory / name).write_bytes(data)
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps({**self.order, "signal": int(number), **when}), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def duration(self) -> float:
        """Seconds that a conversion takes which nothing ends."""
        taken = []
        for _ in range(3):
            began = time.perf_counter()
            assert self.run(signal.SIGKILL, delay=60) == 0
            taken.append(time.perf_counter() - began)
        return min(taken)

    def check(self) -> str:
        """Which output there is: "old", "new" or (only of a set) "none"; every hash is of the file beside it."""
        found = {name: data for name, data in self.contents().items() if not name.startswith(".")}
        for name in [name for name in found if name.endswith(".sha256")]:
            assert found.pop(name).decode().startswith(hashlib.sha256(found[name.removesuffix(".sha256")]).hexdigest())
        if self.split and self.outputs[0] not in found:  # without the first part nothing takes it for a set
            return "none"
        for which, files in (("old", self.old), ("new", self.new)):
            if found == {name: files[name] for name in self.outputs}:
                return which
        raise AssertionError(f"a mixture: { {name: data[:30] for name, data in found.items()} }")

    def check_next_run(self) -> int:
        """The next run clears all away and says so; returns how much there was."""
        left = {name for name in names(self.directory) if name.startswith(".")}
        written = killing.convert(self.order, self.jobs)
        told = {finding.message.split()[0] for finding in written.findings if finding.rule == "stale-partial"}
        assert told == left
        assert self.contents() == self.new
        return len(left)


@pytest.fixture(params=[None, SPLIT], ids=["one", "split"])
def killer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Killer]:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # in this process: it takes most of the time
    made = Killer(tmp_path, request.param)
    assert len(made.outputs) == (2 if request.param else 1)
    with made.process:
        yield made


def test_sigkill_at_every_boundary_of_a_call(killer: Killer) -> None:
    seen = []
    while os.WIFSIGNALED(killer.run(signal.SIGKILL, at=len(seen))):
        seen.append(killer.check())
        killer.check_next_run()
    assert killer.check() == "new"
    order = [state for index, state in enumerate(seen) if state not in seen[:index]]
    assert order == (["old", "none", "new"] if killer.split else ["old", "new"])
    assert seen == sorted(seen, key=order.index)
    assert len(seen) >= 30


def test_sigkill_at_random_moments(killer: Killer) -> None:
    generator = random.Random(7)
    whole = killer.duration()
    kills = left = 0
    while kills < (15 if killer.split else 50):
        if os.WIFSIGNALED(killer.run(signal.SIGKILL, delay=generator.uniform(0, whole))):
            kills += 1
            killer.check()
            left += bool(killer.check_next_run())
    assert left >= kills / 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_other_signals_at_random_moments_leave_nothing(killer: Killer, number: signal.Signals) -> None:
    generator = random.Random(int(number))
    whole = killer.duration()
    stopped = 0
    while stopped < (8 if killer.split else 15):
        status = killer.run(number, delay=generator.uniform(0, whole))
        assert killer.check() in ("old", "new")
        assert not [name for name in names(killer.directory) if name.startswith(".")]
        if status:
            stopped += 1
            assert os.waitstatus_to_exitcode(status) == 128 + number
