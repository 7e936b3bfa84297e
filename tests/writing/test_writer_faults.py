"""Whatever goes wrong while it writes: the previous file stays whole and nothing else is left."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_convert.errors import DsparkError, EnvironmentFault, InputError
from dspark_convert.ggufio.types import GGMLType, u32
from dspark_convert.jobs import TensorJob
from dspark_convert.writing.writer import write
from tests.tensors.jobs import job, source
from tests.writing.writing import METADATA, jobs, names


@pytest.fixture(params=["new", "replacing"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An output path with and without a previous file; ``unharmed`` says that it is still so."""
    path = tmp_path / "out.gguf"
    if request.param == "replacing":
        path.write_bytes(b"previous")
    return path


def unharmed(out: Path, before: set[str]) -> bool:
    return names(out.parent) == before and (out.name not in before or out.read_bytes() == b"previous")


def attempt(out: Path, made: list[TensorJob], kind: type[DsparkError], **options: Any) -> DsparkError:
    """The error of a write that has to fail and to leave everything as it was."""
    before = names(out.parent)
    with pytest.raises(kind) as caught:
        write(out, METADATA, made, force=True, **options)
    assert unharmed(out, before)
    assert "\n" not in str(caught.value)
    return caught.value


def test_bad_metadata_is_refused_before_anything_is_written(out: Path, tmp_path: Path) -> None:
    before = names(tmp_path)
    with pytest.raises(InputError, match="'a'"):
        write(out, [u32("a", -1)], jobs(tmp_path), force=True)
    assert unharmed(out, before)


def test_non_finite_values_are_all_told_and_nothing_is_left(out: Path, tmp_path: Path) -> None:
    made = jobs(tmp_path)
    for index, (value, dtype, target) in enumerate(
        [(np.nan, "F32", GGMLType.F32), (7e4, "F32", GGMLType.F16), (np.inf, "F64", GGMLType.Q8_0)]
    ):
        values = np.zeros((40, 32))
        values[20, index] = value
        ref = source(tmp_path / "inputs" / f"bad{index}", values, dtype)
        made.insert(2 * index, job(ref, target, name=f"blk.{index}"))
    fault = attempt(out, made, InputError)
    assert str(fault).startswith(f"{out} was not written: values of 3 tensors are NaN, infinite, or too large")
    assert [(finding.rule, finding.where) for finding in fault.findings] == [
        ("non-finite-values", "bad0"),
        ("f16-overflow", "bad1"),
        ("non-finite-values", "bad2"),
    ]
    assert "flat index 641" in fault.findings[1].message
    assert "bf16" in fault.findings[1].fix


def test_once_a_value_is_bad_nothing_more_is_written(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jobs(tmp_path)
    bad = source(tmp_path / "inputs" / "bad", np.full((1, 32), np.nan), "F64")
    real, places = os.pwrite, []

    def counting(descriptor: int, data: bytes, at: int) -> int:
        places.append(at)
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", counting)
    attempt(out, [job(bad, GGMLType.F32, name="bad"), *made], InputError, threads=1)
    assert places == [0]  # the header


def test_a_truncated_source(out: Path, tmp_path: Path) -> None:
    made = jobs(tmp_path)
    assert made[3].source
    made[3].source.path.write_bytes(bytes(100))
    assert "the file ends inside tensor Q8_0.bin" in str(attempt(out, made, InputError))


@pytest.mark.parametrize("works", [True, False])
def test_no_descriptor_stays_open(tmp_path: Path, works: bool) -> None:
    made = jobs(tmp_path)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (iterating a Path keeps one open)
    if works:
        write(tmp_path / "o.gguf", METADATA, made)
    else:
        assert made[3].source
        made[3].source.path.write_bytes(bytes(100))
        attempt(tmp_path / "o.gguf", made, InputError)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_too_little_space_is_seen_before(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = jobs(tmp_path)
    needed = write(tmp_path / "inputs" / "probe", METADATA, made).nbytes
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 10**6 - needed + 1, needed - 1))
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("it wrote"))
    message = str(attempt(out, made, EnvironmentFault))
    assert message == f"cannot write {out}: it needs {needed} bytes, and {tmp_path} has {needed - 1} free."


def test_a_source_that_changes_while_it_is_read(out: Path, tmp_path: Path) -> None:
    made = jobs(tmp_path)
    before = names(tmp_path)
    changed = made[0].source
    assert changed is not None

    def overwrite(done: int, _total: int) -> None:
        if done > 500 and changed.path.stat().st_mtime_ns:
            with changed.path.open("r+b") as file:
                file.write(b"\1\1")
            os.utime(changed.path, ns=(0, 0))  # a clock may be too coarse to show the write

    with pytest.raises(InputError, match=r"F32\.bin changed while it was read"):
        write(out, METADATA, made, force=True, progress=overwrite)
    assert unharmed(out, before)


def test_a_matrix_of_zeros_is_told(out: Path, tmp_path: Path) -> None:
    before = names(tmp_path)
    made = jobs(tmp_path)
    for name, shape in (("matrix", (40, 32)), ("vector", (7,))):
        ref = source(tmp_path / "inputs" / name, np.zeros(shape, np.float32), "F32")
        made.append(job(ref, GGMLType.F32, name=f"{name}.weight"))
    with pytest.raises(InputError, match="matrices are all zero") as caught:
        write(out, METADATA, made, force=True, strict=True)
    assert unharmed(out, before)
    written = write(out, METADATA, made, force=True)
    for findings in (caught.value.findings, written.findings):
        assert [(f.severity, f.rule, f.where) for f in findings] == [("warning", "all-zero", made[-2].source.name)]


def test_an_exception_of_the_caller_leaves_nothing(out: Path, tmp_path: Path) -> None:
    made = jobs(tmp_path)
    before = names(tmp_path)

    def fail(done: int, total: int) -> None:
        if done > total // 2:
            raise BrokenPipeError(errno.EPIPE, "the caller's own trouble")

    with pytest.raises(BrokenPipeError, match="the caller's own trouble"):
        write(out, METADATA, made, force=True, progress=fail)
    assert unharmed(out, before)


CHILD = """
import resource, signal, sys
from pathlib import Path
from dspark_convert.errors import EnvironmentFault
from dspark_convert.ggufio.types import GGMLType, string
from dspark_convert.writing.writer import write
from dspark_convert.jobs import TensorJob

def ended(signum, frame):
    raise SystemExit(128 + signum)

def halfway(done, total):
    if done > total // 2:
        print("halfway", flush=True)
        signal.pause()

signal.signal(signal.SIGTERM, ended)
zeros = TensorJob("z", GGMLType.F32, (1 << 20,), (), "zeros")
progress = halfway
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    progress = None
try:
    write(Path(sys.argv[1]), [string("a", "b")], [zeros], force=True, progress=progress)
except EnvironmentFault as fault:
    print(fault, flush=True)
"""


def test_a_limit_on_the_file_size(out: Path) -> None:
    before = names(out.parent)
    child = subprocess.run([sys.executable, "-c", CHILD, str(out), "limit"], capture_output=True, text=True, check=True)
    assert child.stdout == f"cannot write {out}: it is larger than the file system or `ulimit -f` allows.\n"
    assert unharmed(out, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_halfway(out: Path, number: signal.Signals) -> None:
    before = names(out.parent)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(out), "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "halfway\n"
        (partial,) = names(out.parent) - before
        assert partial.startswith(f".out.gguf.{child.pid}-")
        assert partial.endswith(".partial")
        assert (out.parent / partial).stat().st_size > 2 << 20
        child.send_signal(number)
        child.wait()
    assert child.returncode == {signal.SIGINT: -signal.SIGINT, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    if number is signal.SIGKILL:  # nobody can clean up then
        (out.parent / partial).unlink()
    assert unharmed(out, before)
