"""Tensors of a GGUF on their way into another: moved byte by byte, or through float32 into another type."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.dequantise import READABLE
from dspark_convert.tensors.losses import Losses
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.quantize import quantize
from tests.tensors.reading import read
from tests.writing.filling import run

QUANTISED = ["Q8_0", "Q4_0", "Q5_0", "Q4_K", "Q6_K", "MXFP4"]


def stored(path: Path, data: bytes, kind: GGMLType, shape: tuple[int, ...]) -> Source:
    path.write_bytes(b"\xff" * 24 + data + b"\xee" * 8)
    return Source(TensorRef(path.name, path, kind.name, shape, 24, len(data)), "ggml")


def job_of(source: Source, kind: GGMLType) -> TensorJob:
    return TensorJob("out.weight", kind, source.shape[::-1], (source,))


def quantised(path: Path, kind: GGMLType, shape: tuple[int, ...] = (4, 5, 512)) -> tuple[Source, np.ndarray]:
    """A source, and its values as the gguf package reads them."""
    values = np.random.default_rng(1).standard_normal((20, 512), np.float32)
    data = quantize(values, kind).tobytes()
    read_back = gguf.quants.dequantize(np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType[kind.name])
    return stored(path, data, kind, shape), read_back.reshape(20, 512)


@pytest.mark.parametrize("kind", [kind for kind in GGMLType if kind.name not in ("F32", "F16", "BF16", "F64")])
@pytest.mark.parametrize("unit_bytes", [1, 1000, 1 << 19])
def test_every_type_is_moved_as_it_stands(tmp_path: Path, kind: GGMLType, unit_bytes: int) -> None:
    elements, size = BLOCKS[kind]
    data = bytes(1 + i % 100 for i in range(2 * 3 * 2 * size))
    source = stored(tmp_path / "w", data, kind, (2, 3, 2 * elements))
    assert read(job_of(source, kind), unit_bytes) == data


def test_what_is_only_moved_needs_no_library(tmp_path: Path) -> None:
    source, _ = quantised(tmp_path / "w", GGMLType.Q4_K)
    run(tmp_path / "o", [job_of(source, GGMLType.Q4_K)], library=tmp_path / "none")
    with pytest.raises(EnvironmentFault, match="none: cannot be used to quantise"):
        run(tmp_path / "o", [job_of(source, GGMLType.Q6_K)], library=tmp_path / "none")


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("target", ["F32", "BF16", "Q8_0", "Q4_K"])
@pytest.mark.parametrize("unit_bytes", [1, 3000, 1 << 19])
def test_another_type_is_made_of_the_values(tmp_path: Path, name: str, target: str, unit_bytes: int) -> None:
    if name == target:
        return
    source, values = quantised(tmp_path / "w", GGMLType[name])
    expected = quantize(values, GGMLType[target]).tobytes()
    assert read(job_of(source, GGMLType[target]), unit_bytes) == expected


@pytest.mark.parametrize("name", sorted({kind.name for kind in GGMLType} - READABLE))
def test_types_that_are_not_read_are_not_cast(tmp_path: Path, name: str) -> None:
    kind = GGMLType[name]
    elements, size = BLOCKS[kind]
    source = stored(tmp_path / "w", bytes(2 * size), kind, (2, elements))
    with pytest.raises(InputError, match=f"no cast from {name} to F32"):
        read(job_of(source, GGMLType.F32))


def test_size_has_to_be_that_of_the_blocks(tmp_path: Path) -> None:
    source = stored(tmp_path / "w", bytes(34), GGMLType.Q8_0, (2, 32))
    with pytest.raises(InputError, match="takes 68 bytes, but the header gives it 34"):
        read(job_of(source, GGMLType.Q8_0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("target", ["Q8_0", "F32", "Q4_K"])
def test_a_bad_scale_is_told_whatever_becomes_of_it(tmp_path: Path, bad: float, target: str) -> None:
    blocks = np.ones((16, 34), np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(0.5).tobytes(), np.uint8)
    blocks[9, :2] = np.frombuffer(np.float16(bad).tobytes(), np.uint8)
    source = stored(tmp_path / "w", blocks.tobytes(), GGMLType.Q8_0, (2, 256))
    check = NonFinite()
    read(job_of(source, GGMLType[target]), 1, check)
    (finding,) = check.findings()
    assert finding.rule == "non-finite-values"
    assert "the file is damaged" in finding.fix
    assert "32 of 512 values" in finding.message
    assert "flat index 288" in finding.message


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(("name", "target"), [("Q8_0", "Q4_0"), ("Q6_K", "Q8_0"), ("Q8_0", "F32")])
def test_losses_are_those_between_the_two_files(tmp_path: Path, name: str, target: str, threads: int) -> None:
    source, before = quantised(tmp_path / "w", GGMLType[name])
    moved = TensorJob("moved.weight", GGMLType[name], source.shape[::-1], (source,))
    made = [moved, job_of(source, GGMLType[target])]
    filled = run(tmp_path / "o", made, threads=threads, measure=True, unit_bytes=3000)
    assert filled.losses[0] is None
    loss = filled.losses[1]
    assert loss is not None
    data = quantize(before, GGMLType[target])
    after = gguf.quants.dequantize(data.reshape(-1), gguf.GGMLQuantizationType[target]).reshape(before.shape)
    change = after.astype(np.float64) - before
    assert loss.relative_rms == pytest.approx(np.sqrt(np.mean(change**2) / np.mean(before.astype(np.float64) ** 2)))
    assert loss.max_abs == pytest.approx(np.abs(change).max())
    assert (loss.relative_rms == 0) == (target == "F32")
    assert run(tmp_path / "o", made, threads=threads).losses == ()


def test_a_loss_does_not_depend_on_who_is_first() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(64).astype(np.float32) * 10.0**i for i in range(-8, 8)]
    found = set()
    for order in (range(16), reversed(range(16)), rng.permutation(16)):
        losses = Losses()
        for i in order:
            losses.measure(0, parts[i], quantize(parts[i][None], GGMLType.Q8_0), GGMLType.Q8_0)
        found.add(losses.of(0))
    assert len(found) == 1
    assert Losses().of(0) is None


def test_zeros_lose_nothing() -> None:
    losses = Losses()
    losses.measure(0, np.zeros(32, np.float32), quantize(np.zeros((1, 32), np.float32), GGMLType.Q8_0), GGMLType.Q8_0)
    loss = losses.of(0)
    assert loss is not None
    assert (loss.relative_rms, loss.max_abs) == (0, 0)
