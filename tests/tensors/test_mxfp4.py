"""MXFP4 against gguf-py, against ggml, and against loops over the published layout."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from dspark_convert.tensors import mxfp4
from tests.tensors.ggml import chunk

TYPE = gguf.GGMLQuantizationType.MXFP4
#: E2M1 by hand
MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def by_loops(packed: np.ndarray, scales: np.ndarray) -> bytes:
    """One code at a time: byte j of a block holds the codes j and j + 16."""
    out = bytearray()
    for row, factors in zip(packed, scales, strict=True):
        codes = [nibble for byte in row for nibble in (int(byte) & 15, int(byte) >> 4)]
        for block, scale in enumerate(factors):
            part = codes[32 * block : 32 * block + 32]
            out += bytes([int(scale), *(part[j] | part[j + 16] << 4 for j in range(16))])
    return bytes(out)


def checkpoint(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scales = rng.integers(0, 256, (rows, columns // 32), np.uint8)
    return rng.integers(0, 256, (rows, columns // 2), np.uint8), scales


@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (5, 96), (64, 2048)])
def test_repack(rows: int, columns: int) -> None:
    packed, scales = checkpoint(rows, columns)
    blocks = mxfp4.repack(packed, scales)
    assert blocks.tobytes() == by_loops(packed, scales)
    out = np.empty_like(blocks)
    assert np.shares_memory(mxfp4.repack(packed, scales, out), out)
    np.testing.assert_array_equal(out, blocks)


def test_a_block_by_hand() -> None:
    packed = np.array([[0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE] * 2], np.uint8)  # 0, 1, 2, ... 15, 0, ...
    blocks = mxfp4.repack(packed, np.array([[127]], np.uint8))
    assert blocks.tolist() == [127, *(17 * code for code in range(16))]
    assert mxfp4.dequantize(blocks)[:16].tolist() == [*MAGNITUDES, *(-value for value in MAGNITUDES)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning:gguf")
def test_every_code_and_scale_means_the_same_before_and_after_and_to_gguf() -> None:
    codes = np.arange(32, dtype=np.uint8) & 15
    packed = np.tile(codes[::2] | codes[1::2] << 4, (256, 1))
    scales = np.arange(256, dtype=np.uint8)[:, None]
    with np.errstate(over="ignore"):
        signed = np.array([*MAGNITUDES, *(-value for value in MAGNITUDES)] * 2)
        exact = (signed * 2.0 ** (np.arange(256.0)[:, None] - 127)).astype(np.float32)
    blocks = mxfp4.repack(packed, scales)
    for values in (mxfp4.to_f32(packed, scales), mxfp4.dequantize(blocks).reshape(256, 32)):
        np.testing.assert_array_equal(values[:255], exact[:255])
        assert np.isnan(values[255]).all()
    theirs = gguf.quants.dequantize(blocks.reshape(256, 17), TYPE)
    np.testing.assert_array_equal(theirs[:255], exact[:255])
    np.testing.assert_array_equal(mxfp4.scales(blocks), np.arange(256))


def test_to_f32_into_a_buffer() -> None:
    packed, scales = checkpoint(5, 96)
    out = np.empty((5, 96), np.float32)
    assert mxfp4.to_f32(packed, scales, out) is out
    np.testing.assert_array_equal(out.reshape(-1), mxfp4.dequantize(mxfp4.repack(packed, scales)))


def powers() -> np.ndarray:
    """Blocks whose largest number is a power of two or one of its neighbours."""
    tops = np.ldexp(1.0, np.arange(-124, 128)).astype(np.float32)
    tops = np.concatenate([tops, np.nextafter(tops, 0), np.nextafter(tops, np.float32(np.inf))])
    values = np.random.default_rng(2).uniform(-1, 1, (len(tops), 32)).astype(np.float32) * tops[:, None]
    values[:, 5] = tops
    return values


def midpoints() -> np.ndarray:
    """Every midpoint of two codes and the float32 beside it, for many scales."""
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
    near = [middles, np.nextafter(middles, 0), np.nextafter(middles, np.float32(9)), -middles]
    row = np.resize(np.concatenate(near), 32)
    row[-1] = 7
    return row * np.ldexp(1.0, np.arange(-120, 120))[:, None].astype(np.float32)


def any_numbers() -> np.ndarray:
    rng = np.random.default_rng(3)
    return (rng.standard_normal((4000, 32)) * 2.0 ** rng.integers(-110, 110, (4000, 1))).astype(np.float32)


CASES = {
    "normal": np.random.default_rng(1).standard_normal((4000, 32), np.float32),
    "any scale": any_numbers(),
    "midpoints": midpoints(),
    "zeros": np.array([[0.0, -0.0] * 16], np.float32),
    "small beside large": np.array([[1e-30, -1e-30] * 15 + [1.0, -1e-38]], np.float32),
}


@pytest.mark.parametrize("case", CASES)
def test_quantised_as_by_gguf_and_ggml(case: str) -> None:
    values = CASES[case]
    ours = mxfp4.quantize(values).reshape(-1, 17)
    np.testing.assert_array_equal(ours, gguf.quants.quantize(values, TYPE))
    np.testing.assert_array_equal(ours, chunk(values, TYPE).reshape(-1, 17))


@pytest.mark.filterwarnings("ignore::RuntimeWarning:gguf")
def test_next_to_powers_of_two_as_ggml_which_rounds_the_logarithm() -> None:
    values = powers()
    np.testing.assert_array_equal(mxfp4.quantize(values).reshape(-1, 17), chunk(values, TYPE).reshape(-1, 17))


@pytest.mark.parametrize("tiny", [2.0**-126, 2.0**-130, 1e-45])
def test_numbers_below_the_smallest_scale_keep_it(tiny: float) -> None:
    values = np.zeros(32, np.float32)
    values[3] = -tiny
    blocks = mxfp4.quantize(values)
    assert blocks[0] == 0  # where ggml's exponent wraps round to one far too large
    assert abs(mxfp4.dequantize(blocks)[3] + tiny) <= 2.0**-129


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_scale_tells_of_a_bad_value(bad: float) -> None:
    values = np.ones(96, np.float32)
    values[40] = bad
    assert mxfp4.scales(mxfp4.quantize(values)).tolist() == [125, 255, 125]


def test_quantise_into_a_buffer() -> None:
    out = np.empty(17 * 4000, np.uint8)
    assert np.shares_memory(mxfp4.quantize(CASES["normal"], out), out)
    np.testing.assert_array_equal(out, mxfp4.quantize(CASES["normal"]))
