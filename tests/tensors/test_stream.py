from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.ggufio.types import GGMLType
from tests.tensors.jobs import job, numbers, source
from tests.tensors.reading import parts, read


def as_f32(values: np.ndarray, dtype: str) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else values.astype(np.float32)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F64"])
@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0])
def test_units_of_any_size_give_what_gguf_gives_at_once(tmp_path: Path, dtype: str, target: GGMLType) -> None:
    values = numbers(dtype, (7, 3, 96))
    the_job = job(source(tmp_path / "w", values, dtype), target)
    qtype = gguf.GGMLQuantizationType[target.name]
    expected = gguf.quants.quantize(as_f32(values, dtype), qtype).tobytes()
    assert len(expected) == the_job.nbytes
    for unit_bytes in (1, 100, 1000, 1 << 19):
        assert read(the_job, unit_bytes) == expected


def test_small_units(tmp_path: Path) -> None:
    the_job = job(source(tmp_path / "w", numbers("F32", (64, 96)), "F32"), GGMLType.Q8_0)
    assert [len(part) for part in parts(the_job, 4096)] == [1088] * 6


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.BF16, GGMLType.Q8_0])
@pytest.mark.parametrize("unit_bytes", [1, 200, 1 << 19])
def test_pad_columns(tmp_path: Path, dtype: str, target: GGMLType, unit_bytes: int) -> None:
    values = numbers(dtype, (5, 2, 33))
    the_job = job(source(tmp_path / "w", values, dtype), target, shape=(64, 2, 5), transform="pad_columns")
    padded = np.zeros((5, 2, 64), np.float32)
    padded[..., :33] = as_f32(values, dtype)
    expected = gguf.quants.quantize(padded, gguf.GGMLQuantizationType[target.name]).tobytes()
    assert read(the_job, unit_bytes) == expected


@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0])
@pytest.mark.parametrize("unit_bytes", [1000, 1 << 19])
def test_zeros(target: GGMLType, unit_bytes: int) -> None:
    the_job = job(None, target, shape=(64, 50), transform="zeros")
    data = read(the_job, unit_bytes)
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
    with pytest.raises(InputError, match="tensor w: no cast from F32 to Q8_1"):
        read(job(ref, GGMLType.Q8_1))
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
    stream = parts(job(ref, GGMLType.F32), 256)
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
