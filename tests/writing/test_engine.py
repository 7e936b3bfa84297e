"""Threads fill the tensors of a file: the same bytes whoever is first."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.tensors.quantize import quantize
from dspark_convert.writing.engine import AHEAD, MAX_THREADS, Filled, default_threads
from tests.tensors.jobs import job, numbers, source
from tests.tensors.test_encoded import fp4, fp8
from tests.writing.filling import START, as_f32, layout, run
from tests.writing.writing import jobs


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


@pytest.mark.parametrize(("threads", "used"), [(3, 3), (100, MAX_THREADS)])
def test_a_slow_hash_holds_the_threads_back(
    threads: int, used: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more units wait for it than there are readers, of which there are only so many."""
    written = 0
    pwrite = os.pwrite

    def counting(descriptor: int, data: memoryview, offset: int) -> int:
        nonlocal written
        written += len(data)
        return pwrite(descriptor, data, offset)

    class Slow:
        hashed = 0

        def update(self, data: bytes | memoryview) -> None:
            held.append(written - self.hashed)
            self.hashed += len(data)

        def hexdigest(self) -> str:
            return ""

    held: list[int] = []
    monkeypatch.setattr(os, "pwrite", counting)
    made = job(source(tmp_path / "w", numbers("F32", (4000, 64)), "F32"), GGMLType.F32)
    run(tmp_path / "o", [made], threads=threads, unit_bytes=256, digest=Slow())
    assert len(held) == 2 * 4000  # with the padding before each, mostly empty
    assert max(held) <= 256 * (used + AHEAD)


@pytest.mark.parametrize("encoding", ["plain", "fp8", "fp4"])
@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.BF16, GGMLType.Q8_0, GGMLType.MXFP4, GGMLType.Q5_0])
def test_what_waits_to_be_hashed_is_not_written_over(
    tmp_path: Path, encoding: str, target: GGMLType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hashing begins when every reader has been used and none is free."""
    rows = 30
    if encoding == "plain":
        made = Source(source(tmp_path / "w", numbers("BF16", (rows, 96)), "BF16"))
    else:
        made, _ = (fp8 if encoding == "fp8" else fp4)(tmp_path, rows=rows)
    pwrite, written, all_used = os.pwrite, [], threading.Event()

    def counting(descriptor: int, data: memoryview, offset: int) -> int:
        written.append(offset)
        if len(written) == 2 + AHEAD:
            all_used.set()
        return pwrite(descriptor, data, offset)

    class Late:
        def __init__(self) -> None:
            self.digest = hashlib.sha256()

        def update(self, data: bytes | memoryview) -> None:
            assert all_used.wait(30)
            self.digest.update(data)

        def hexdigest(self) -> str:
            return self.digest.hexdigest()

    monkeypatch.setattr(os, "pwrite", counting)
    late = Late()
    run(tmp_path / "o", [TensorJob("o", target, (96, rows), (made,))], threads=2, unit_bytes=100, digest=late)
    assert len(written) > 2 * (2 + AHEAD)
    assert late.hexdigest() == hashlib.sha256((tmp_path / "o").read_bytes()[START:]).hexdigest()


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
from dspark_convert.writing.engine import fill
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
