"""--deep: which blocks hold NaN or infinity, with gguf's own dequantisation as the truth."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.lint.values import CHECKED_TYPES, F16_AT, all_finite


@pytest.mark.parametrize("kind", CHECKED_TYPES, ids=lambda kind: kind.name)
def test_as_dequantised(kind: GGMLType) -> None:
    rng = np.random.default_rng(3)
    blocks = rng.integers(0, 256, (3000, BLOCKS[kind][1]), dtype=np.uint8)
    blocks[: len(blocks) // 2] &= 0x83  # small exponents wherever the scale stands: most of these are finite
    seen = set()
    with np.errstate(all="ignore"):
        for block in blocks:
            values = gguf.quants.dequantize(block, gguf.GGMLQuantizationType(kind))
            finite = bool(np.isfinite(values).all())
            assert all_finite(block, kind) == finite, block
            seen.add(finite)
    assert seen == ({True} if kind is GGMLType.NVFP4 else {True, False})


@pytest.mark.parametrize("kind", F16_AT, ids=lambda kind: kind.name)
def test_one_bad_scale_among_many_blocks(kind: GGMLType) -> None:
    blocks = np.ones((100, BLOCKS[kind][1]), np.uint8)
    assert all_finite(blocks.reshape(-1), kind)
    for at in F16_AT[kind]:
        for sign, fraction in ((0x7C, 0), (0xFC, 0), (0x7E, 1)):
            bad = blocks.copy()
            bad[57, at : at + 2] = fraction, sign
            assert not all_finite(bad.reshape(-1), kind)
