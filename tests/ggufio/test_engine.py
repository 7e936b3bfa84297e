"""Threads fill the tensors of a file: the same bytes whoever is first, and an end whatever fails."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.ggufio.engine import Filled, default_threads, fill
from dspark_convert.ggufio.types import GGMLType, padded
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.quantize import quantize
from tests.ggufio.writing import jobs
from tests.tensors.jobs import job, numbers, source

START = 96


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def layout(made: list[TensorJob], alignment: int = 32) -> tuple[list[int], int]:
    """Absolute offsets of the tensors, and the end of the last one."""
    offsets, end = [], START
    for each in made:
        offsets.append(padded(end, alignment))
        end = offsets[-1] + each.nbytes
    return offsets, end


def run(path: Path, made: list[TensorJob], check: NonFinite | None = None, **more: object) -> Filled:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        return fill(descriptor, made, layout(made)[0], check=NonFinite() if check is None else check, path=path, **more)  # type: ignore[arg-type]
    finally:
        os.close(descriptor)


def as_f32(values: np.ndarray, dtype: str) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else values.astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("unit_bytes", [1, 300, 1 << 19])
def test_any_number_of_threads_and_any_unit_give_what_gguf_gives(tmp_path: Path, threads: int, unit_bytes: int) -> None:
    made, expected = [], []
    for target in (GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0):
        for dtype in ("BF16", "F32"):
            values = numbers(dtype, (9, 64), int(target))
            name = f"{target.name}-{dtype}"
            made.append(job(source(tmp_path / name, values, dtype), target, name=name))
            qtype = gguf.GGMLQuantizationType[target.name]
            expected.append(gguf.quants.quantize(as_f32(values, dtype), qtype).tobytes())
    offsets, end = layout(made)
    whole = bytearray(end)
    for offset, data in zip(offsets, expected, strict=True):
        whole[offset : offset + len(data)] = data
    digest = hashlib.sha256()
    filled = run(tmp_path / "o", made, threads=threads, digest=digest, tensor_digests=True, unit_bytes=unit_bytes)
    assert (tmp_path / "o").read_bytes() == whole
    assert digest.hexdigest() == hashlib.sha256(whole[START:]).hexdigest()
    assert filled == Filled((), tuple(hashlib.sha256(data).hexdigest() for data in expected))


@pytest.mark.parametrize("threads", [1, 3])
def test_hashing_changes_no_byte(tmp_path: Path, threads: int) -> None:
    made = jobs(tmp_path)
    run(tmp_path / "plain", made, threads=threads, unit_bytes=100)
    run(tmp_path / "hashed", made, threads=threads, unit_bytes=100, digest=hashlib.sha256())
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "hashed").read_bytes()


@pytest.mark.parametrize("threads", [1, 4])
def test_sources_are_stacked_in_their_order(tmp_path: Path, threads: int) -> None:
    experts = [numbers("BF16", (6, 64), seed) for seed in range(5)]
    sources = tuple(Source(source(tmp_path / f"e{n}", values, "BF16")) for n, values in enumerate(experts))
    stacked = TensorJob("exps", GGMLType.Q8_0, (64, 6, 5), sources)
    run(tmp_path / "o", [stacked], threads=threads, unit_bytes=500)
    by_hand = gguf.quants.quantize(as_f32(np.stack(experts), "BF16"), gguf.GGMLQuantizationType.Q8_0)
    assert (tmp_path / "o").read_bytes()[START:] == by_hand.tobytes()


@pytest.mark.parametrize("target", [GGMLType.Q4_K, GGMLType.Q6_K, GGMLType.Q5_0])
def test_rows_quantised_in_threads_are_the_tensor_quantised_at_once(tmp_path: Path, target: GGMLType) -> None:
    values = numbers("BF16", (50, 512))
    made = job(source(tmp_path / "w", values, "BF16"), target)
    run(tmp_path / "o", [made], threads=5, unit_bytes=3000)
    assert (tmp_path / "o").read_bytes()[START:] == quantize(as_f32(values, "BF16"), target).tobytes()


def test_a_library_that_is_none_is_seen_before_anything_is_written(tmp_path: Path) -> None:
    made = [many(tmp_path), job(source(tmp_path / "k", numbers("F32", (4, 256)), "F32"), GGMLType.Q4_K, name="k")]
    with pytest.raises(EnvironmentFault, match=r"none\.so"):
        run(tmp_path / "o", made, library=tmp_path / "none.so")
    assert (tmp_path / "o").read_bytes() == b""


def test_no_tensors(tmp_path: Path) -> None:
    digest = hashlib.sha256()
    assert run(tmp_path / "o", [], digest=digest, tensor_digests=True) == Filled()
    assert digest.digest() == hashlib.sha256().digest()


def test_progress_comes_in_the_callers_thread_and_ends_at_all_bytes(tmp_path: Path) -> None:
    made, calls = jobs(tmp_path), []
    run(tmp_path / "o", made, progress=lambda done: calls.append((threading.current_thread(), done)))
    assert {thread for thread, _ in calls} == {threading.current_thread()}
    assert [done for _, done in calls] == sorted(done for _, done in calls)
    assert calls[-1][1] == sum(each.nbytes for each in made)


def test_short_reads_and_writes_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = jobs(tmp_path)
    run(tmp_path / "whole", made)
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:77], offset))
    monkeypatch.setattr(os, "preadv", lambda descriptor, views, offset: preadv(descriptor, [views[0][:13]], offset))
    run(tmp_path / "short", made)
    assert (tmp_path / "short").read_bytes() == (tmp_path / "whole").read_bytes()


def many(tmp_path: Path, rows: int = 400) -> TensorJob:
    return job(source(tmp_path / "w", numbers("F32", (rows, 64)), "F32"), GGMLType.Q8_0)


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


def test_jobs_that_do_not_agree_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    bad = job(source(tmp_path / "bad", numbers("F32", (4, 64)), "F32"), GGMLType.F32, shape=(64, 5))
    with pytest.raises(InputError, match="does not give"):
        run(tmp_path / "o", [many(tmp_path), bad])
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


def test_matrices_of_zeros_are_told(tmp_path: Path) -> None:
    zeros, some = np.zeros((40, 32), np.float32), np.zeros((40, 32), np.float32)
    some[39, 31] = 1e-30  # nothing is left of it in Q8_0, but it was there
    refs = [source(tmp_path / n, v, "F32") for n, v in (("a", zeros), ("b", some), ("c", zeros), ("d", zeros[0]))]
    made = [
        TensorJob("exps", GGMLType.Q8_0, (32, 40, 3), tuple(Source(ref) for ref in refs[:3])),
        job(refs[3], GGMLType.F32, name="vector"),
    ]
    findings = run(tmp_path / "o", made, threads=2, unit_bytes=256).findings
    assert [(f.severity, f.rule, f.where) for f in findings] == [
        ("warning", "all-zero", "a"),
        ("warning", "all-zero", "c"),
    ]


def test_default_threads() -> None:
    assert 1 <= default_threads() <= 8


MEMORY = """
import hashlib, os, re, sys
from pathlib import Path
from dspark_convert.ggufio.engine import fill
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.nonfinite import NonFinite
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
before = peak()
path, rows = Path(sys.argv[1]), 25_000
ref = TensorRef("w", path, "BF16", (rows, 4096), 0, rows * 8192)
job = TensorJob("w", GGMLType[sys.argv[2]], (4096, rows), (Source(ref),))
fill(os.open("/dev/null", os.O_WRONLY), [job], [0], threads=4, digest=hashlib.sha256(), check=NonFinite(), path=path)
print(peak() - before, peak())
"""


@pytest.mark.parametrize("target", ["F32", "BF16", "Q8_0"])
def test_memory_does_not_grow_with_the_tensor(tmp_path: Path, target: str) -> None:
    path = tmp_path / "w"
    with path.open("wb") as file:
        file.truncate(25_000 * 8192)  # 205 MB of zeros that take no room
    child = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path), target], capture_output=True, text=True, check=True
    )
    growth, peak = map(int, child.stdout.split())
    assert growth < 24 << 20
    assert peak < 90 << 20
