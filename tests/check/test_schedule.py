"""Side by side within jobs and memory, in order, and nothing left behind when it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event, Lock

import pytest

from dspark_convert.check import schedule
from dspark_convert.check.checks import Case, Check
from dspark_convert.check.children import Children, Stopped
from dspark_convert.check.results import Result, StepResult
from dspark_convert.check.schedule import BASE, WITH_TORCH, memory_of, run_cases
from tests.check.places import COMMAND, write


def cases(count: int) -> list[Case]:
    return [Case(Check(f"c{i}", Path("/x"), ("plan",)), "auto") for i in range(count)]


def passed(case: Case) -> Result:
    return Result(case.check.name, case.outtype, (StepResult("plan", "pass"),))


Use = Callable[[Callable[[Case], Result]], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    def put(work: Callable[[Case], Result]) -> None:
        monkeypatch.setattr(schedule, "run_case", lambda case, *_: work(case))

    return put


def test_as_many_as_there_are_jobs_and_results_in_order(use: Use) -> None:
    together = Barrier(3)

    def work(case: Case) -> Result:
        together.wait(10)  # breaks unless three are at work at once
        return passed(case)

    use(work)
    told: list[str] = []
    results = run_cases(cases(6), jobs=3, memory=10**12, done=lambda result: told.append(result.name))
    assert [result.name for result in results] == [f"c{i}" for i in range(6)]
    assert sorted(told) == [f"c{i}" for i in range(6)]


@pytest.mark.parametrize(("memory", "most"), [(BASE, 1), (2 * BASE + 1, 2), (1, 1)])
def test_no_more_than_fit_into_the_memory(use: Use, memory: int, most: int) -> None:
    lock, at_work, seen = Lock(), [0], [0]

    def work(case: Case) -> Result:
        with lock:
            at_work[0] += 1
            seen[0] = max(seen[0], at_work[0])
        Event().wait(0.01)
        with lock:
            at_work[0] -= 1
        return passed(case)

    use(work)
    assert len(run_cases(cases(8), jobs=8, memory=memory)) == 8
    assert seen[0] <= most


def test_what_a_run_takes(tmp_path: Path) -> None:
    target, draft = tmp_path / "target.gguf", tmp_path / "draft"
    draft.mkdir()
    for path, size in ((target, 5000), (draft / "a.safetensors", 300), (draft / "config.json", 7)):
        path.write_bytes(bytes(size))
    check = Check("a", draft, ("plan", "convert", "validate"), target=target, target_gguf=target, reference=draft)
    assert memory_of(Case(check, "auto")) == WITH_TORCH + 2 * 5300 + 2 * 300
    assert memory_of(Case(Check("a", draft, ("plan", "convert")), "auto")) == BASE


def test_a_fault_of_our_own_ends_everything(use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def work(_case: Case) -> Result:
        raise ZeroDivisionError

    use(work)
    with pytest.raises(ZeroDivisionError):
        run_cases(cases(8), jobs=2, memory=1)
    assert list(tmp_path.iterdir()) == []


def test_stopped_children_are_not_started(tmp_path: Path) -> None:
    children = Children()
    children.stop()
    with pytest.raises(Stopped):
        children.run("dspark_convert.check.planning", ["{}"], tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "draft").mkdir()
    write(tmp_path / "CHECKS.toml", '[[check]]\nname = "a"\nsource = "draft"\n')
    module = write(tmp_path / "slow" / "sitecustomize.py", SLOW.format(root=tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path / "work"), "PYTHONPATH": str(module.parent)}
    command = [*COMMAND, tmp_path / "CHECKS.toml", "--no-cache"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "child").exists() and time.monotonic() < deadline and process.poll() is None:
            Event().wait(0.02)
        child = int((tmp_path / "child").read_text())
        assert len(list((tmp_path / "work").iterdir())) == 1
        os.kill(process.pid, number)
        process.wait(30)
    assert process.returncode == code
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert list((tmp_path / "work").iterdir()) == []


#: a child that plans writes its number down and waits for good
SLOW = """\
import os, sys, threading
if "planning" in " ".join(sys.orig_argv):
    partial = "{root}/partial"
    with open(partial, "w") as file:
        file.write(str(os.getpid()))
    os.rename(partial, "{root}/child")
    threading.Event().wait()
"""
