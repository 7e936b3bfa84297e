"""NVFP4 against loops over the published layout, torch's E4M3 and gguf-py."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from dspark_convert.tensors import nvfp4


def by_loops(packed: np.ndarray, scales: np.ndarray) -> bytes:
    """Of every 64 values the 4 scales, then for each of them 8 bytes of the codes j and j + 8."""
    out = bytearray()
    for row, factors in zip(packed, scales, strict=True):
        codes = [nibble for byte in row for nibble in (int(byte) & 15, int(byte) >> 4)]
        for start in range(0, len(factors), 4):
            out += bytes(int(scale) & 0x7F for scale in factors[start : start + 4])
            for group in range(start, start + 4):
                part = codes[16 * group : 16 * group + 16]
                out += bytes(part[j] | part[j + 8] << 4 for j in range(8))
    return bytes(out)


def checkpoint(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (rows, columns // 2), np.uint8), rng.integers(0, 127, (rows, columns // 16), np.uint8)


@pytest.mark.parametrize(("rows", "columns"), [(1, 64), (3, 192), (40, 1024)])
def test_repack_and_back(rows: int, columns: int) -> None:
    packed, scales = checkpoint(rows, columns)
    blocks = nvfp4.repack(packed, scales)
    assert blocks.tobytes() == by_loops(packed, scales)
    out = np.empty_like(blocks)
    assert np.shares_memory(nvfp4.repack(packed, scales, out), out)
    np.testing.assert_array_equal(out, blocks)

    codes = np.stack([packed & 15, packed >> 4], axis=2).reshape(rows, columns)
    magnitude = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[codes & 7] * np.where(codes & 8, -1, 1)
    factors = torch.from_numpy(scales).view(torch.float8_e4m3fn).double().numpy()
    exact = (magnitude * np.repeat(factors, 16, axis=1)).astype(np.float32)
    np.testing.assert_array_equal(nvfp4.dequantize(blocks).reshape(rows, columns), exact)
    theirs = gguf.quants.dequantize(blocks.reshape(rows, -1), gguf.GGMLQuantizationType.NVFP4)
    np.testing.assert_array_equal(theirs, exact)


def test_every_scale() -> None:
    scales = np.arange(256, dtype=np.uint8).reshape(1, 256)
    packed = np.full((1, 256 * 8), 0xA2, np.uint8)  # 1, -1, 1, ...
    blocks = nvfp4.repack(packed, scales)
    np.testing.assert_array_equal(nvfp4.scales(blocks).reshape(-1), np.arange(256) & 0x7F)
    exact = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()  # NaN for 0x7F and 0xFF
    signed = np.tile(np.array([1, -1], np.float32), 128 * 16) * exact.repeat(16)
    np.testing.assert_array_equal(nvfp4.dequantize(blocks), signed)
    np.testing.assert_array_equal(nvfp4.to_f32(packed, scales, 1.0)[0], signed)


def test_a_negative_scale_changes_the_signs_of_its_16_codes_alone() -> None:
    packed, scales = checkpoint(2, 128)
    scales[1, 3] |= 0x80
    sound = nvfp4.repack(packed, scales & 0x7F).reshape(2, 2, 36)
    found = nvfp4.repack(packed, scales).reshape(2, 2, 36)
    sound[1, 0, 4 + 3 * 8 : 4 + 4 * 8] ^= 0x88
    np.testing.assert_array_equal(found, sound)


def test_the_tensors_own_scale_rounds_once() -> None:
    packed, scales = checkpoint(5, 64)
    factor = float(np.float32(0.00123))
    exact = nvfp4.dequantize(nvfp4.repack(packed, scales)).astype(np.float64) * factor
    np.testing.assert_array_equal(nvfp4.to_f64(packed, scales, factor).reshape(-1), exact)
    np.testing.assert_array_equal(nvfp4.to_f32(packed, scales, factor).reshape(-1), exact.astype(np.float32))
