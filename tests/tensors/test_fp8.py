"""FP8 against torch's own FP8 dtypes, over all 256 codes and all 256 scales."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from dspark_convert.tensors import fp8, q8_0

#: every pair: row s has scale s and all codes
CODES = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
SCALES = np.arange(256, dtype=np.uint8)[:, None]
TILE = (1, 256)


def truth(codes: np.ndarray, scales: np.ndarray, tile: tuple[int, int]) -> torch.Tensor:
    """Float64 values by torch, the scales spread over their tiles."""
    rows, columns = codes.shape
    numbers = torch.from_numpy(codes).view(torch.float8_e4m3fn).double()
    factors = torch.from_numpy(scales).view(torch.float8_e8m0fnu).double()
    spread = factors.repeat_interleave(tile[0], 0).repeat_interleave(tile[1], 1)
    return numbers * spread[:rows, :columns]


def same(ours: np.ndarray, theirs: torch.Tensor) -> None:
    """Bit for bit, except that a NaN only has to be one."""
    expected = theirs.view({2: torch.int16, 4: torch.int32}[theirs.element_size()]).numpy()
    nan = theirs.isnan().numpy()
    np.testing.assert_array_equal(ours.view(expected.dtype)[~nan], expected[~nan])
    wide = (ours.astype(np.uint32) << 16).view(np.float32) if ours.dtype == np.uint16 else ours
    assert np.isnan(wide[nan]).all()


def matrix(rows: int, columns: int, tile: tuple[int, int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random codes without NaN, random scales around 1."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (rows, columns), np.uint8)
    codes[codes & 0x7F == 0x7F] = 0x31
    return codes, rng.integers(100, 130, (-(-rows // tile[0]), -(-columns // tile[1])), np.uint8)


def test_every_pair_in_float32_and_what_is_nan() -> None:
    values = fp8.to_f32(CODES, SCALES, TILE)
    same(values, truth(CODES, SCALES, TILE).float())
    assert np.isnan(values[255]).all()  # the scale
    assert np.isnan(values[:, [0x7F, 0xFF]]).all()  # the codes
    assert values[0, 1] == 2.0**-136 and values[0, 0x38] == 2.0**-127  # subnormal, and exact
    assert values[246, 0x7E] == 448 * 2.0**119 and values[247, 0x7E] == np.inf


def test_every_pair_in_bf16_and_f16() -> None:
    same(fp8.to_bf16(CODES, SCALES, TILE), truth(CODES, SCALES, TILE).float().bfloat16())
    same(fp8.to_f16(CODES, SCALES, TILE), truth(CODES, SCALES, TILE).half())


def test_which_pairs_are_exact_in_bf16() -> None:
    exact = truth(CODES, SCALES, TILE)
    lost = (exact.float().bfloat16().double() != exact) & ~exact.isnan()
    per_scale = [fp8.inexact_in_bf16(CODES[s : s + 1], SCALES[s : s + 1], TILE) for s in range(256)]
    assert per_scale == lost.sum(1).tolist()
    assert [s for s, count in enumerate(per_scale) if not count] == [*fp8.EXACT_SCALES, 255]


def test_only_codes_that_occur_can_be_inexact() -> None:
    codes = np.full((4, 64), 0x38, np.uint8)  # ones: exact with every scale
    scales = np.array([[0, 254]], np.uint8)
    assert fp8.inexact_in_bf16(codes, scales, (4, 32)) == 0
    codes[1, 3], codes[2, 60] = 1, 0x7E
    assert fp8.inexact_in_bf16(codes, scales, (4, 32)) == 2


def every_block() -> np.ndarray:
    """Codes [128 * 16 blocks of 32]: with each largest code every code that is no larger."""
    codes = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    largest = np.arange(128, dtype=np.uint8)[:, None, None]
    blocks = np.empty((128, 16, 32), np.uint8)
    blocks[:, :, :16] = np.where(codes & 0x7F <= largest, codes, 0)
    blocks[:, :, 16:] = largest
    return blocks.reshape(1, -1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:gguf")
def test_q8_0_of_every_scale_largest_code_and_code() -> None:
    codes = np.tile(every_block(), (256, 1))
    tile = (1, codes.shape[1])
    ours = fp8.to_q8_0(codes, SCALES, tile).reshape(256, 128, 16, 34)
    values = fp8.to_f32(codes, SCALES, tile)
    np.testing.assert_array_equal(ours.reshape(-1), q8_0.quantize(values.reshape(-1)))
    # gguf is asked of what it defines: no NaN (largest code 127), and 1 / d is a normal number
    sound = values[17:247].reshape(230, 128, 16, 32)[:, :127].reshape(-1, 32)
    theirs = gguf.quants.quantize(sound, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(ours[17:247, :127].reshape(-1, 34), theirs)


SHAPES = [(1, 32, (128, 128)), (7, 96, (128, 128)), (130, 160, (128, 128)), (65, 96, (32, 32)), (3, 320, (1, 128))]


@pytest.mark.parametrize(("rows", "columns", "tile"), SHAPES)
def test_odd_shapes_and_rows_from_the_middle_of_a_tile(rows: int, columns: int, tile: tuple[int, int]) -> None:
    codes, scales = matrix(rows, columns, tile)
    whole = truth(codes, scales, tile)
    quantised = q8_0.quantize(whole.float().numpy().reshape(-1)).reshape(rows, -1)
    for first in {0, rows // 3, rows // 2, rows - 1}:
        for count in {1, rows // 2 + 1, rows - first}:
            part = codes[first : first + count]
            rest = whole[first : first + count]
            same(fp8.to_f32(part, scales, tile, first), rest.float())
            same(fp8.to_bf16(part, scales, tile, first), rest.bfloat16())
            same(fp8.to_f16(part, scales, tile, first), rest.half())
            data = fp8.to_q8_0(part, scales, tile, first)
            np.testing.assert_array_equal(data.reshape(len(part), -1), quantised[first : first + count])
            assert fp8.inexact_in_bf16(part, scales, tile, first) == 0


@pytest.mark.parametrize("tile", [(5, 48), (1, 1), (64, 20)])
def test_tiles_that_cross_the_blocks_of_q8_0(tile: tuple[int, int]) -> None:
    codes, scales = matrix(20, 96, tile)
    whole = truth(codes, scales, tile).float()
    same(fp8.to_f32(codes, scales, tile), whole)
    np.testing.assert_array_equal(fp8.to_q8_0(codes, scales, tile), q8_0.quantize(whole.numpy().reshape(-1)))


def test_rows_longer_than_a_step() -> None:
    codes, scales = matrix(3, 3 * fp8.STEP, (2, 128))
    same(fp8.to_bf16(codes, scales, (2, 128)), truth(codes, scales, (2, 128)).bfloat16())


def test_buffers_are_used_again() -> None:
    codes, scales = matrix(6, 64, (4, 32))
    for function, out in (
        (fp8.to_f32, np.empty((6, 64), np.float32)),
        (fp8.to_bf16, np.empty((6, 64), np.uint16)),
        (fp8.to_f16, np.empty((6, 64), np.float16)),
        (fp8.to_q8_0, np.empty(6 * 68, np.uint8)),
    ):
        result = function(codes, scales, (4, 32), 0, out)
        assert np.shares_memory(result, out)
        np.testing.assert_array_equal(out, function(codes, scales, (4, 32)))


def test_a_block_by_hand() -> None:
    codes = np.array([[0x38, 0xB8, 0x40, 0x7E, 0x01, 0x80]], np.uint8)  # 1, -1, 2, 448, 2^-9, -0
    values = fp8.to_f32(codes, np.array([[126]], np.uint8), (128, 128))
    assert values.tolist() == [[0.5, -0.5, 1, 224, 2.0**-10, 0]] and np.signbit(values[0, 5])
