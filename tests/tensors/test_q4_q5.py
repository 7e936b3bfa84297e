"""Q4_0 and Q5_0 against gguf-py, ggml, and a block by hand."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.tensors.dequantise import dequantise
from dspark_convert.tensors.q4_q5 import quantize_q4_0, quantize_q5_0
from tests.tensors.ggml import chunk

KINDS = {GGMLType.Q4_0: quantize_q4_0, GGMLType.Q5_0: quantize_q5_0}


def normal(scale: float) -> np.ndarray:
    return (np.random.default_rng(6).standard_normal((4000, 32)) * scale).astype(np.float32)


def near_ties() -> np.ndarray:
    """Next to where q changes, d = -1 and -1/2 exactly, and blocks with two equal magnitudes."""
    steps = np.arange(-16, 16, dtype=np.float32) + np.float32(0.5)
    rows = [steps, np.nextafter(steps, np.float32(99)), np.nextafter(steps, np.float32(-99))]
    blocks = np.array([*rows, *(row / 2 for row in rows)], np.float32)
    blocks[:, 7] = 8
    halves = blocks.copy()
    halves[:, 7] = -16
    equal = blocks.clip(-8, 8)
    equal[:, [3, 20]] = -8
    return np.concatenate([blocks, halves, equal, -equal])


CASES = {
    "small": normal(1e-3),
    "large": normal(1e3),
    "huge, some scales infinite": normal(3e5),
    "around the smallest scale": normal(2.0**-24 * 8),
    "zeros of both signs": np.array([[0.0, -0.0] * 16], np.float32),
    "near ties": near_ties(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:gguf")
def test_same_bytes_as_gguf_and_ggml(kind: GGMLType, case: str) -> None:
    values, size = CASES[case], BLOCKS[kind][1]
    ours = KINDS[kind](values)
    theirs = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind.name])
    np.testing.assert_array_equal(ours.reshape(-1, size), theirs)
    np.testing.assert_array_equal(ours, chunk(values, kind))
    out = np.empty_like(ours)
    assert np.shares_memory(KINDS[kind](values, out), out)
    np.testing.assert_array_equal(out, ours)


def test_blocks_by_hand() -> None:
    values = np.zeros(32, np.float32)
    values[[0, 1, 16, 31]] = [-8, 7, 3, -4]  # d = 1: q = 0, 15, 8 for zero, 11, 4
    assert quantize_q4_0(values).tobytes() == bytes([0x00, 0x3C, 0xB0, 0x8F, *[0x88] * 13, 0x48])
    values *= 2  # d = 1: q = 0, 30, 16 for zero, 22, 8
    upper = 0xFFFFFFFF & ~(1 << 0) & ~(1 << 31)
    assert quantize_q5_0(values).tobytes() == bytes(
        [0x00, 0x3C, *upper.to_bytes(4, "little"), 0x60, 0x0E, *[0] * 13, 0x80]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf, 1e7, -3e38])
@pytest.mark.parametrize("place", [0, 31])
def test_the_scale_tells_of_a_bad_value(kind: GGMLType, bad: float, place: int) -> None:
    values = np.ones(96, np.float32)
    values[32 + place] = bad
    blocks = KINDS[kind](values).reshape(3, -1)
    scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16)[:, 0]
    np.testing.assert_array_equal(np.isfinite(scales), [True, False, True])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tiny", [2.0**-140, 1e-45])
def test_where_one_over_d_overflows_the_values_are_zero(kind: GGMLType, tiny: float) -> None:
    blocks = KINDS[kind](np.full(32, tiny, np.float32))
    assert not dequantise(blocks.data, kind.name).any()
