"""Files bent at random: an answer always comes, soon, in little memory, and it is ggml's answer too.

    python -m tests.hostile.fuzz --cases 500000 --seed 1

Each case is made of the seed and its number alone: ``--first N --cases 1`` makes it again. What goes wrong is
told with that number, and its files are kept in the working directory under ``--keep``. Exits with 1 then.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tests.hostile.differences import WE_ACCEPT, WE_REFUSE, explain
from tests.hostile.ggml_child import Ggml
from tests.hostile.gguf_py import gguf_py_accepts
from tests.hostile.judge import Outcome, judge
from tests.hostile.mutate import bend
from tests.hostile.samples import WEIGHTS, Sample, make_samples

#: of processor time: a case takes about a millisecond
MAX_SECONDS = 2.0
#: all files have under 200,000 bytes; what one case may add to the memory of the process, and all of them
MAX_CASE_BYTES = 8 << 20
MAX_TOTAL_BYTES = 32 << 20
#: cases until every module is loaded and every cache warm
WARM_UP = 300


class Hung(BaseException):
    """A case took too long."""


@dataclass
class Report:
    cases: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    ggml: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)
    memory: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "cases": self.cases,
            "ended": dict(self.ended),
            "rules": dict(self.rules.most_common()),
            "ggml": dict(self.ggml),
            "differences": dict(self.differences),
            "slowest": {"seconds": round(self.slowest[0], 4), "case": self.slowest[1]},
            "memory_growth": self.memory,
            "wrong": self.wrong,
        }


def peak_memory() -> int:
    """Most bytes that this process has had; getrusage would count its parent's too."""
    return int(re.search(rb"VmHWM:\s+(\d+)", Path("/proc/self/status").read_bytes())[1]) * 1024  # type: ignore[index]


class Fuzz:
    """Makes, judges and compares cases in a directory of its own."""

    def __init__(self, seed: int, directory: Path, ggml: Ggml | None, keep: Path | None) -> None:
        self.seed = seed
        self.directory = directory
        self.ggml = ggml
        self.keep = keep
        self.samples = make_samples()
        self.weights: list[float] = WEIGHTS
        self.report = Report()

    def run(self, first: int, cases: int) -> Report:
        signal.signal(signal.SIGPROF, _hung)
        floor = before = peak_memory()
        for number in range(first, first + cases):
            self.report.cases += 1
            self._case(number)
            now = peak_memory()
            if self.report.cases <= WARM_UP:
                floor = now
            elif now - before > MAX_CASE_BYTES or now - floor > MAX_TOTAL_BYTES:
                self._wrong(number, f"the memory grew by {now - before:,} bytes, and {now - floor:,} in all")
                floor = now
            self.report.memory = max(self.report.memory, now - floor)
            before = now
        return self.report

    def _case(self, number: int) -> None:
        rng = random.Random(f"{self.seed}:{number}")
        files = self.make(rng)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        try:
            outcome = judge(self.directory / files[0], deep=number % 16 == 0, shown=number % 16 == 1)
        except (Exception, Hung):
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._wrong(number, "".join(traceback.format_exc(limit=-3).split("\n")[-9:]))
            return
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if self.report.cases > WARM_UP:
            self.report.slowest = max(self.report.slowest, (time.process_time() - began, number))
        self.report.ended[outcome.ended] += 1
        self.report.rules.update(set(re.findall(r"^[a-z]+ \[([a-z0-9-]+)\]", outcome.told, re.MULTILINE)))
        if len(files) == 1 and self.ggml is not None:
            self._compare(number, self.ggml.accepts((self.directory / files[0]).read_bytes()), outcome, files[0])

    def make(self, rng: random.Random) -> list[str]:
        """Write a bent file, or a set of which one at least is bent; returns their names, the first to be opened."""
        samples: tuple[Sample, ...] = rng.choices(self.samples, self.weights)[0]
        count = len(samples)
        names = [f"dspark-{i + 1:05d}-of-{count:05d}.gguf" if count > 1 else "dspark-x.gguf" for i in range(count)]
        chosen = rng.randrange(count)
        for i, (name, sample) in enumerate(zip(names, samples, strict=True)):
            bent = bend(sample, rng) if i == chosen or rng.random() < 0.3 else (sample.header, sample.size)
            self._write(name, *bent)
        if count > 1 and rng.random() < 0.05:
            (self.directory / names[1]).unlink()
        return names

    def _write(self, name: str, header: bytes, size: int) -> None:
        descriptor = os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, header)
        os.ftruncate(descriptor, size)
        os.close(descriptor)

    def _compare(self, number: int, theirs: bool | None, outcome: Outcome, name: str) -> None:
        """``theirs``: ggml's verdict."""
        self.report.ggml["died" if theirs is None else "took" if theirs else "refused"] += 1
        if bool(theirs) == outcome.sound:
            return
        if outcome.sound:
            reason = explain(outcome.told, WE_ACCEPT)
            if reason is None:
                self._wrong(number, f"ggml refuses what we take: {outcome.told}")
        else:
            reason = explain(outcome.told, WE_REFUSE)
            if reason is None and not gguf_py_accepts(self.directory / name):
                reason = "gguf-py refuses it too, ggml takes it"
            if reason is None:
                self._wrong(number, f"ggml and gguf-py take what we refuse: {outcome.told}")
        if reason:
            self.report.differences[reason] += 1

    def _wrong(self, number: int, what: str) -> None:
        self.report.wrong.append(f"case {number} of seed {self.seed}: {what}")
        if self.keep:
            self.keep.mkdir(parents=True, exist_ok=True)
            for path in self.directory.iterdir():
                (self.keep / f"{self.seed}-{number}-{path.name}").write_bytes(path.read_bytes())


def _hung(_signal: int, _frame: FrameType | None) -> None:
    raise Hung(f"more than {MAX_SECONDS} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--keep", type=Path, help="directory for the files of what went wrong")
    options = parser.parse_args()
    gc.freeze()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - the files are not worth a disk
    with tempfile.TemporaryDirectory(dir=memory) as directory, Ggml() as ggml:
        report = Fuzz(options.seed, Path(directory), ggml, options.keep).run(options.first, options.cases)
    print(json.dumps(report.to_json(), indent=2))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
