"""Whatever fails while threads fill a file: it ends, no thread is left, and the same is told."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors.nonfinite import NonFinite
from tests.tensors.jobs import job, numbers, source
from tests.writing.filling import many, run


@pytest.fixture(autouse=True)
def it_ends() -> Iterator[None]:
    """In time, and with all threads that it began."""

    def hangs(*_: object) -> None:
        raise TimeoutError

    before = threading.active_count()
    previous = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("hashed", [False, True])
def test_a_source_cut_halfway(tmp_path: Path, threads: int, hashed: bool) -> None:
    made = [many(tmp_path)]
    assert made[0].source
    os.truncate(made[0].source.path, 24 + 200 * 256 + 100)
    with pytest.raises(InputError, match="w: the file ends inside tensor w, which needs the bytes up to 102424"):
        run(tmp_path / "o", made, threads=threads, unit_bytes=1024, digest=hashlib.sha256() if hashed else None)


@pytest.mark.parametrize("threads", [1, 5])
def test_of_two_faults_the_first_in_the_file_is_told(tmp_path: Path, threads: int) -> None:
    made = []
    for name in ("a", "b", "c", "d"):
        ref = source(tmp_path / name, numbers("F32", (4, 64)), "F32")
        made.append(job(ref, GGMLType.F32, name=name))
    for name in ("b", "c", "d"):
        os.truncate(tmp_path / name, 100)
    for _ in range(20):
        with pytest.raises(InputError, match="inside tensor b"):
            run(tmp_path / "o", made, threads=threads)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_write_that_fails_ends_all(
    tmp_path: Path, number: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [many(tmp_path, 4000)]
    pwrite, calls = os.pwrite, []

    def failing(descriptor: int, data: memoryview, offset: int) -> int:
        calls.append(offset)
        if offset > 5000:
            raise OSError(number, os.strerror(number))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(EnvironmentFault, match=r"cannot write .*/o: "):
        run(tmp_path / "o", made, threads=threads, unit_bytes=256, digest=hashlib.sha256())
    assert len(calls) < 400  # of 4000


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ZeroDivisionError])
def test_an_exception_of_the_caller_stops_the_threads(tmp_path: Path, kind: type[BaseException]) -> None:
    def fail(_: int) -> None:
        raise kind

    with pytest.raises(kind):
        run(tmp_path / "o", [many(tmp_path, 4000)], threads=3, unit_bytes=256, progress=fail)


def test_a_fault_of_our_own_in_a_thread_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "preadv", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "o", [many(tmp_path)], threads=4)


def test_threads_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def two_at_most(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", two_at_most)
    with pytest.raises(EnvironmentFault, match="lets no 5 threads start; use fewer with --threads"):
        run(tmp_path / "o", [many(tmp_path, 4000)], threads=5, unit_bytes=256)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_fault_while_hashing_ends_all(tmp_path: Path, threads: int) -> None:
    class Failing:
        def update(self, _: bytes | memoryview) -> None:
            raise MemoryError

        def hexdigest(self) -> str:
            return ""

    with pytest.raises(MemoryError):
        run(tmp_path / "o", [many(tmp_path)], threads=threads, unit_bytes=256, digest=Failing())


def test_jobs_that_do_not_agree_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    bad = job(source(tmp_path / "bad", numbers("F32", (4, 64)), "F32"), GGMLType.F32, shape=(64, 5))
    with pytest.raises(InputError, match="does not give"):
        run(tmp_path / "o", [many(tmp_path), bad])
    assert (tmp_path / "o").read_bytes() == b""


def test_a_library_that_is_none_is_seen_before_anything_is_written(tmp_path: Path) -> None:
    made = [many(tmp_path), job(source(tmp_path / "k", numbers("F32", (4, 256)), "F32"), GGMLType.Q4_K, name="k")]
    with pytest.raises(EnvironmentFault, match=r"none\.so"):
        run(tmp_path / "o", made, library=tmp_path / "none.so")
    assert (tmp_path / "o").read_bytes() == b""


@pytest.mark.parametrize("threads", [1, 5])
def test_bad_values_are_told_the_same_by_any_number_of_threads(tmp_path: Path, threads: int) -> None:
    made = []
    for name, at in (("late", 25_599), ("both", 17), ("clean", None)):
        values = numbers("F32", (400, 64))
        if at is not None:
            values.reshape(-1)[[at, -1]] = np.nan, np.inf
            values.reshape(-1)[100] = 1e9 if name == "both" else 0
        made.append(job(source(tmp_path / name, values, "F32"), GGMLType.F16, name=name))
    check = NonFinite()
    run(tmp_path / "o", made, check, threads=threads, unit_bytes=1000)
    assert [(finding.where, finding.message.split(": ")[1]) for finding in check.findings()] == [
        ("late", "1 of 25600 values are NaN or infinite, the first (inf) at flat index 25599."),
        ("both", "2 of 25600 values are NaN or infinite, the first (nan) at flat index 17."),
        ("both", "1 of 25600 values are too large for F16, the first (1e+09) at flat index 100."),
    ]


def test_bad_values_of_one_file_after_another(tmp_path: Path) -> None:
    """As for the parts of a split set."""
    check = NonFinite()
    for name in ("z", "a"):
        bad = source(tmp_path / name, np.full((4, 32), np.nan), "F32")
        run(tmp_path / "o", [job(bad, GGMLType.F32, name=name)], check)
    assert [finding.where for finding in check.findings()] == ["z", "a"]
    assert all("128 of 128 values" in finding.message for finding in check.findings())


def test_once_a_value_is_bad_only_the_scan_goes_on(tmp_path: Path) -> None:
    bad = job(source(tmp_path / "bad", np.full((1, 32), np.nan), "F64"), GGMLType.F32, name="bad")
    run(tmp_path / "o", [bad, many(tmp_path)], check := NonFinite(), threads=1, unit_bytes=256)
    assert check
    assert (tmp_path / "o").read_bytes() == b""
