"""The bound of each number: what an independent rounding makes is within, little more is not."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from dspark_convert.diff.bounds import CHOSEN, bound, limit
from dspark_convert.ggufio.types import GGMLType

F32, F16, BF16, Q8_0, Q4_0 = GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0, GGMLType.Q4_0


def numbers(scale: float) -> np.ndarray:
    """Of every size around ``scale``, zeros among them."""
    rng = np.random.default_rng(4)
    values = rng.normal(size=1 << 16) * scale * 2.0 ** rng.integers(-6, 6, 1 << 16)
    values[::97] = 0
    return values.astype(np.float32)


def rounded(values: np.ndarray, kind: GGMLType) -> np.ndarray:
    """By torch and gguf-py."""
    if kind is Q8_0:
        number = gguf.GGMLQuantizationType.Q8_0
        return gguf.quants.dequantize(gguf.quants.quantize(values, number), number)
    dtype = {F32: torch.float32, F16: torch.float16, BF16: torch.bfloat16}[kind]
    return torch.from_numpy(values).to(dtype).float().numpy()


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 1e-9, 500.0])
@pytest.mark.parametrize("a", [F32, F16, BF16, Q8_0])
@pytest.mark.parametrize("b", [F32, F16, BF16, Q8_0])
def test_every_rounding_is_within(a: GGMLType, b: GGMLType, scale: float) -> None:
    if a == b:
        assert bound(a, b) is None
        return
    x, y = (rounded(numbers(scale), kind).astype(np.float64) for kind in (a, b))
    largest = bound(a, b)
    assert largest is not None
    assert (np.abs(x - y) <= largest(x, y)).all()


@pytest.mark.parametrize(
    ("kind", "step"),
    [(F16, 2.0**-10), (BF16, 2.0**-7), (Q8_0, 2.0 / 127)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_step_further_is_beyond(kind: GGMLType, step: float) -> None:
    """1 in a block whose largest is 2: three quarters of a step away is too far, half a step is not."""
    x = np.ones(32)
    x[31] = 2
    largest = bound(kind, F32)
    assert largest is not None
    for share, beyond in ((0.49, False), (0.75, True)):
        y = x.copy()
        y[5] += share * step
        assert (np.abs(x - y) > largest(x, y)).any() == beyond


def test_a_block_of_zeros_explains_nothing_large() -> None:
    largest = bound(Q8_0, F32)
    assert largest is not None
    assert (largest(np.zeros(32), np.full(32, 1e-3)) < 1e-5).all()


def test_the_coarser_type_decides() -> None:
    assert limit(F32, Q4_0) == limit(Q4_0, F32) == limit(Q8_0, Q4_0) == limit(Q4_0, Q4_0) == 0.27
    assert limit(BF16, Q8_0) == 0.023
    assert limit(F32, GGMLType.IQ1_S) == 0.7
    assert [limit(kind, kind) for kind in (F32, BF16, Q8_0, GGMLType.MXFP4, GGMLType.I64)] == [0] * 5
    assert Q4_0 in CHOSEN and bound(F32, Q4_0) is None
