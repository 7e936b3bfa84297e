"""NVFP4 as modelopt stores it, read in units of any size: kept, or made numbers, beside torch, gguf and ggml."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from dspark_convert.errors import InputError
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.ggml_quants import find_library
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.quantize import quantize
from tests.tensors.reading import read
from tests.tensors.test_encoded import E2M1, damaged, stored, told
from tests.tensors.test_transforms import order
from tests.writing.filling import run

FACTOR = float(np.float32(0.0371))


def nvfp4(directory: Path, rows: int = 9, columns: int = 192, factor: float = FACTOR) -> tuple[Source, np.ndarray]:
    """A source and its values, float32 [rows, columns]; scales of all sizes, subnormal ones and zero too."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 16, (rows, columns), np.uint8)
    scales = random.integers(0, 127, (rows, columns // 16), np.uint8)
    made = Source(
        stored(directory / "w", codes[:, ::2] | codes[:, 1::2] << 4, "U8"),
        "nvfp4",
        stored(directory / "w_scale", scales, "F8_E4M3"),
        tensor_scale=stored(directory / "w_scale_2", np.array(factor, "<f4"), "F32"),
    )
    factors = torch.from_numpy(scales).view(torch.float8_e4m3fn).double().numpy().repeat(16, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        return made, (E2M1[codes].astype(np.float64) * factors * factor).astype(np.float32)


def job(made: Source, target: GGMLType) -> TensorJob:
    return TensorJob("o", target, made.shape[::-1], (made,))


@pytest.mark.parametrize("unit_bytes", [1, 700, 1 << 19])
def test_kept(tmp_path: Path, unit_bytes: int) -> None:
    """The bytes by hand; what gguf and ggml read in them, times the tensor's own scale, are the values."""
    made, values = nvfp4(tmp_path)
    data = np.frombuffer(read(job(made, GGMLType.NVFP4), unit_bytes), np.uint8)
    packed = np.frombuffer(made.values.path.read_bytes()[5:-1], np.uint8).reshape(-1, 4, 2, 4)
    assert made.scales
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1, 4, 2, 8)  # block, group, half, code
    by_hand = np.empty((9 * 3, 36), np.uint8)
    by_hand[:, :4] = np.frombuffer(made.scales.path.read_bytes()[5:-1], np.uint8).reshape(-1, 4)
    by_hand[:, 4:] = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 32)
    assert data.tobytes() == by_hand.tobytes()
    theirs = gguf.quants.dequantize(data.reshape(9, -1), gguf.GGMLQuantizationType.NVFP4)
    np.testing.assert_array_equal((theirs.astype(np.float64) * FACTOR).astype(np.float32), values)
    np.testing.assert_array_equal(by_ggml(data, 9 * 192).reshape(9, 192), theirs)


def by_ggml(data: np.ndarray, count: int) -> np.ndarray:
    function = ctypes.CDLL(str(find_library())).dequantize_row_nvfp4
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    out = np.empty(count, np.float32)
    function(data.ctypes.data, out.ctypes.data, count)
    return out


@pytest.mark.parametrize(
    "target",
    [GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0, GGMLType.MXFP4, GGMLType.Q4_0, GGMLType.Q4_1],
)
@pytest.mark.parametrize("unit_bytes", [1, 700, 1 << 19])
def test_made_numbers(tmp_path: Path, target: GGMLType, unit_bytes: int) -> None:
    made, values = nvfp4(tmp_path)
    assert read(job(made, target), unit_bytes) == quantize(values, target).tobytes()


def test_rows_of_no_whole_blocks(tmp_path: Path) -> None:
    """48 columns are three groups, of which a GGUF's block has four."""
    made, values = nvfp4(tmp_path, columns=48)
    assert read(job(made, GGMLType.F32)) == values.tobytes()
    with pytest.raises((InputError, ValueError), match="NVFP4 needs rows that are a multiple of 64, not 48"):
        read(job(made, GGMLType.NVFP4))


def test_without_a_scale_of_its_own(tmp_path: Path) -> None:
    made, values = nvfp4(tmp_path, factor=1.0)
    assert read(job(replace(made, tensor_scale=None), GGMLType.F32)) == values.tobytes()


@pytest.mark.parametrize("target", [GGMLType.NVFP4, GGMLType.BF16])
def test_pairs_taken_apart(tmp_path: Path, target: GGMLType) -> None:
    made, _ = nvfp4(tmp_path, rows=16)
    straight = np.frombuffer(read(job(made, target)), np.uint8).reshape(16, -1)
    unpaired = replace(job(made, target), transform="unpair", head_dim=8)
    assert read(unpaired, 1) == straight[order(16, 8)].tobytes()


def test_the_scale_is_a_tensor_of_its_own(tmp_path: Path) -> None:
    made, _ = nvfp4(tmp_path)
    assert made.tensor_scale is not None and made.tensor_scale.shape == ()
    assert read(TensorJob("o.scale", GGMLType.F32, (1,), (Source(made.tensor_scale),))) == np.float32(FACTOR).tobytes()


@pytest.mark.parametrize("target", [GGMLType.NVFP4, GGMLType.F32, GGMLType.F16, GGMLType.Q8_0])
@pytest.mark.parametrize("scale", [0x7F, 0xFF])
def test_a_scale_that_is_nan(tmp_path: Path, target: GGMLType, scale: int) -> None:
    made, _ = nvfp4(tmp_path)
    assert made.scales
    damaged(made.scales, 8 * 12 + 5, scale)
    message = f"16 of 1728 values are NaN or infinite, the first (nan) at flat index {8 * 192 + 5 * 16}."
    assert told(job(made, target)) == [("non-finite-values", "w", message)]


@pytest.mark.parametrize("target", [GGMLType.NVFP4, GGMLType.F32])
def test_a_negative_scale_means_negative_values(tmp_path: Path, target: GGMLType) -> None:
    made, values = nvfp4(tmp_path)
    assert made.scales
    old = made.scales.path.read_bytes()[5 + 14]
    damaged(made.scales, 14, old | 0x80)
    values.reshape(-1, 16)[14] *= -1
    data = np.frombuffer(bytearray(read(job(made, target))), np.uint8)
    if target is GGMLType.NVFP4:
        found = (by_ggml(data, values.size).astype(np.float64) * FACTOR).astype(np.float32)
    else:
        found = data.view(np.float32)
    np.testing.assert_array_equal(found, values.reshape(-1))


@pytest.mark.parametrize(
    ("factor", "rule"), [(np.nan, "non-finite-values"), (np.inf, "non-finite-values"), (2e38, "f32-overflow")]
)
def test_a_scale_of_its_own_that_is_too_large(tmp_path: Path, factor: float, rule: str) -> None:
    made, _ = nvfp4(tmp_path, factor=factor)
    assert {found[:2] for found in told(job(made, GGMLType.F32))} == {(rule, "w")}


@pytest.mark.parametrize("threads", [1, 3])
def test_nothing_is_lost_of_what_is_kept(tmp_path: Path, threads: int) -> None:
    made, _ = nvfp4(tmp_path)
    kept, rounded = run(
        tmp_path / "o",
        [job(made, GGMLType.NVFP4), job(made, GGMLType.Q8_0)],
        threads=threads,
        measure=True,
        unit_bytes=500,
    ).losses
    assert kept is None
    assert rounded is not None and 0 < rounded.relative_rms < 0.01


def test_sources_that_do_not_fit(tmp_path: Path) -> None:
    good, _ = nvfp4(tmp_path)
    assert good.scales and good.tensor_scale
    for bad, words in (
        (replace(good, scales=None), r"tensor w needs scales of dtype F8_E4M3, but there are none\."),
        (replace(good, scales=replace(good.scales, dtype="F8_E8M0")), r"but w_scale is F8_E8M0\."),
        (replace(good, scales=replace(good.scales, shape=(9, 6))), r"has shape \[9, 6\], but .* need \[9, 12\]\."),
        (replace(good, values=replace(good.values, dtype="I8")), "no cast from I8 to F32"),
        (replace(good, values=replace(good.values, shape=(12, 72))), r"need \[12, 9\]"),
        (replace(good, values=replace(good.values, shape=(24, 36))), "has 72 columns, expected a multiple of 16"),
        (
            replace(good, tensor_scale=replace(good.tensor_scale, dtype="F16")),
            r"w_scale_2, the scale of all of w, is F16",
        ),
        (
            replace(good, tensor_scale=replace(good.tensor_scale, shape=(2,))),
            r"is F32 \[2\], expected one F32 number\.",
        ),
        (replace(good, tensor_scale=replace(good.tensor_scale, nbytes=2)), "takes 4 bytes, but the header gives it 2"),
    ):
        with pytest.raises(InputError, match=words):
            read(job(bad, GGMLType.F32))
    with pytest.raises(InputError, match="no cast from U8 to NVFP4"):  # padding has no block of its own
        read(TensorJob("o", GGMLType.NVFP4, (256, 9), (good,), "pad_columns"))
    plain = Source(TensorRef("p", tmp_path / "w", "F32", (9, 24), 5, 864))
    with pytest.raises(InputError, match="no cast from F32 to NVFP4"):
        read(TensorJob("o", GGMLType.NVFP4, (24, 9), (plain,)))


def test_blocks_of_a_gguf_with_a_nan_scale_are_told(tmp_path: Path) -> None:
    made, _ = nvfp4(tmp_path)
    data = np.frombuffer(read(job(made, GGMLType.NVFP4)), np.uint8).copy()
    blocks = Source(stored(tmp_path / "b", data, "NVFP4"), "ggml")
    blocks = replace(blocks, values=replace(blocks.values, shape=(9, 192)))
    assert read(job(blocks, GGMLType.NVFP4), 1) == data.tobytes()
    damaged(blocks.values, 36 * 4 + 1, 0x7F)
    read(job(blocks, GGMLType.NVFP4), 1, check := NonFinite())
    assert [found.rule for found in check.findings()] == ["non-finite-values"]


@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.Q8_0, GGMLType.Q4_0])
def test_blocks_of_a_gguf_become_what_the_checkpoint_gives(tmp_path: Path, target: GGMLType) -> None:
    made, _ = nvfp4(tmp_path)
    blocks = stored(tmp_path / "b", np.frombuffer(read(job(made, GGMLType.NVFP4)), np.uint8), "NVFP4")
    source = Source(replace(blocks, shape=(9, 192)), "ggml", tensor_scale=made.tensor_scale)
    assert read(job(source, target), 1) == read(job(made, target))
    assert read(job(source, GGMLType.NVFP4), 1) == read(job(made, GGMLType.NVFP4))
    assert made.tensor_scale
    with pytest.raises(InputError, match="w_scale_2, the scale of all of b, is I32"):
        read(job(replace(source, tensor_scale=replace(made.tensor_scale, dtype="I32")), target))
