from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import TensorJob
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.stream import blocks
from tests.tensors.jobs import job, numbers, source


def read(the_job: TensorJob, buffer_bytes: int = 1 << 19) -> bytes:
    return b"".join(bytes(block) for block in blocks(the_job, NonFinite(), buffer_bytes=buffer_bytes))


def as_f32(values: np.ndarray, dtype: str) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else values.astype(np.float32)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F64"])
@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0])
def test_buffers_of_any_size_give_what_gguf_gives_at_once(tmp_path: Path, dtype: str, target: GGMLType) -> None:
    values = numbers(dtype, (7, 3, 96))
    the_job = job(source(tmp_path / "w", values, dtype), target)
    qtype = gguf.GGMLQuantizationType[target.name]
    expected = gguf.quants.quantize(as_f32(values, dtype), qtype).tobytes()
    assert len(expected) == the_job.nbytes
    for buffer_bytes in (1, 100, 1000, 1 << 19):
        assert read(the_job, buffer_bytes) == expected


def test_small_buffers_mean_small_blocks(tmp_path: Path) -> None:
    the_job = job(source(tmp_path / "w", numbers("F32", (64, 96)), "F32"), GGMLType.Q8_0)
    assert [len(block) for block in blocks(the_job, NonFinite(), buffer_bytes=4096)] == [1088] * 6


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.BF16, GGMLType.Q8_0])
@pytest.mark.parametrize("buffer_bytes", [1, 200, 1 << 19])
def test_pad_columns(tmp_path: Path, dtype: str, target: GGMLType, buffer_bytes: int) -> None:
    values = numbers(dtype, (5, 2, 33))
    the_job = job(source(tmp_path / "w", values, dtype), target, shape=(64, 2, 5), transform="pad_columns")
    padded = np.zeros((5, 2, 64), np.float32)
    padded[..., :33] = as_f32(values, dtype)
    expected = gguf.quants.quantize(padded, gguf.GGMLQuantizationType[target.name]).tobytes()
    assert read(the_job, buffer_bytes) == expected


@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0])
@pytest.mark.parametrize("buffer_bytes", [1000, 1 << 19])
def test_zeros(target: GGMLType, buffer_bytes: int) -> None:
    the_job = job(None, target, shape=(64, 50), transform="zeros")
    data = read(the_job, buffer_bytes)
    assert len(data) == the_job.nbytes
    assert not gguf.quants.dequantize(np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType[target.name]).any()


def test_signalling_nans_survive_a_copy(tmp_path: Path) -> None:
    values = np.arange(1 << 16, dtype=np.uint16)
    assert read(job(source(tmp_path / "w", values, "BF16"), GGMLType.BF16), 1000) == values.tobytes()


@pytest.mark.parametrize(
    ("shape", "transform"),
    [
        ((4, 64), "copy"),
        ((64, 2, 2), "copy"),
        ((96, 4), "copy"),
        ((32, 4), "pad_columns"),
        ((96, 5), "pad_columns"),
        ((96, 2, 2), "pad_columns"),
    ],
)
def test_a_shape_that_does_not_fit(tmp_path: Path, shape: tuple[int, ...], transform: str) -> None:
    ref = source(tmp_path / "w", numbers("F32", (4, 64)), "F32")
    with pytest.raises(InputError, match=r"tensor w: its shape \[4, 64\] does not give .* of out.weight, by"):
        read(job(ref, GGMLType.F32, shape=shape, transform=transform))  # type: ignore[arg-type]


def test_a_source_that_is_no_float_or_missing_or_of_another_size(tmp_path: Path) -> None:
    ref = source(tmp_path / "w", numbers("F32", (4, 64)), "F32")
    with pytest.raises(InputError, match="tensor w: no cast from I8 to Q8_0"):
        read(job(replace(ref, dtype="I8"), GGMLType.Q8_0))
    with pytest.raises(InputError, match="tensor w: no cast from F32 to Q4_0"):
        read(job(ref, GGMLType.Q4_0))
    with pytest.raises(InputError, match=r"out\.weight: the transform copy needs a source"):
        read(job(None, GGMLType.F32, shape=(4,)))
    with pytest.raises(InputError, match="takes 1024 bytes, but the header gives it 1000"):
        read(job(replace(ref, nbytes=1000), GGMLType.F32))


@pytest.mark.parametrize("left", [0, 24, 25, 24 + 1023])
def test_a_file_that_is_too_short(tmp_path: Path, left: int) -> None:
    ref = source(tmp_path / "w", numbers("F32", (4, 64)), "F32")
    ref.path.write_bytes(ref.path.read_bytes()[:left])
    with pytest.raises(InputError, match="w: the file ends inside tensor w, which needs the bytes up to 1048"):
        read(job(ref, GGMLType.F32))


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    ref = source(tmp_path / "w", numbers("F32", (4, 64)), "F32")
    stream = blocks(job(ref, GGMLType.F32), NonFinite(), buffer_bytes=256)
    next(stream)
    ref.path.write_bytes(b"")
    with pytest.raises(InputError, match="truncated, or changed while it was read"):
        next(stream)


def test_a_file_that_vanished_or_cannot_be_read(tmp_path: Path) -> None:
    ref = source(tmp_path / "w", numbers("F32", (4, 64)), "F32")
    ref.path.unlink()
    with pytest.raises(InputError, match="w: the file of tensor w has vanished"):
        read(job(ref, GGMLType.F32))
    ref.path.mkdir()
    with pytest.raises(EnvironmentFault, match="w: cannot read tensor w: Is a directory"):
        read(job(ref, GGMLType.F32))


MEMORY = """
import re, sys
from pathlib import Path
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.stream import blocks
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
before = peak()
path, rows = Path(sys.argv[1]), 25_000
ref = TensorRef("w", path, "BF16", (rows, 4096), 0, rows * 8192)
total = 0
for block in blocks(TensorJob("w", GGMLType[sys.argv[2]], (4096, rows), (Source(ref),)), NonFinite()):
    total += len(block)
print(total, peak() - before, peak())
"""


@pytest.mark.parametrize(("target", "nbytes"), [("F32", 409_600_000), ("Q8_0", 108_800_000)])
def test_memory_does_not_grow_with_the_tensor(tmp_path: Path, target: str, nbytes: int) -> None:
    path = tmp_path / "w"
    with path.open("wb") as file:
        file.truncate(25_000 * 8192)  # 205 MB of zeros that take no room
    child = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path), target], capture_output=True, text=True, check=True
    )
    total, growth, peak = map(int, child.stdout.split())
    assert total == nbytes
    assert growth < 16 << 20
    assert peak < 80 << 20
