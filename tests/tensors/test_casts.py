"""Casts against torch and gguf-py, over every 16-bit pattern where the source has 16 bits."""

from __future__ import annotations

import warnings

import gguf
import numpy as np
import pytest
import torch

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors.casts import SOURCE_DTYPES, TARGET_TYPES, cast

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
#: every upper half of a float32 with lower halves below, at and above the tie
F32_EDGES = (
    PATTERNS.astype(np.uint32)[:, None] << 16 | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
).reshape(-1)


def as_bf16(patterns: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(patterns.view(np.int16)).view(torch.bfloat16)


def bits(tensor: torch.Tensor) -> np.ndarray:
    integer = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.view(integer).numpy().view(f"<u{tensor.element_size()}")


def assert_same_but_nan(ours: np.ndarray, theirs: torch.Tensor) -> None:
    """Bit for bit, except that a NaN only has to be a NaN."""
    expected = bits(theirs)
    nan = theirs.isnan().numpy()
    ours = ours.view(expected.dtype)
    np.testing.assert_array_equal(ours[~nan], expected[~nan])
    infinity = {torch.float16: 0x7C00, torch.bfloat16: 0x7F80, torch.float32: 0x7F800000}[theirs.dtype]
    sign = 1 << (8 * ours.itemsize - 1)
    assert (ours[nan] & ours.dtype.type(sign - 1) > infinity).all()


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("BF16", PATTERNS),
        ("F16", PATTERNS.view(np.float16)),
        ("F32", F32_EDGES.view(np.float32)),
    ],
)
def test_the_same_dtype_is_a_byte_copy(dtype: str, values: np.ndarray) -> None:
    assert cast(values, dtype, GGMLType[dtype]).tobytes() == values.tobytes()


def test_bf16_to_f32_of_every_pattern() -> None:
    out = cast(PATTERNS, "BF16", GGMLType.F32).view(np.uint32)
    np.testing.assert_array_equal(out, bits(as_bf16(PATTERNS).float()))


def test_bf16_to_f16_of_every_pattern() -> None:
    assert_same_but_nan(cast(PATTERNS, "BF16", GGMLType.F16), as_bf16(PATTERNS).half())


@pytest.mark.parametrize(
    ("bf16", "f16"),
    [
        (0x3F80, 0x3C00),  # 1
        (0x477F, 0x7BF8),  # 65280
        (0x4780, 0x7C00),  # 65536 overflows
        (0xC780, 0xFC00),
        (0x3380, 0x0001),  # 2^-24, the smallest subnormal
        (0x3300, 0x0000),  # 2^-25 lies in the middle: to even
        (0x3301, 0x0001),
        (0x8001, 0x8000),  # a subnormal of BF16 becomes -0
    ],
)
def test_bf16_to_f16_by_hand(bf16: int, f16: int) -> None:
    assert int(cast(np.array([bf16], np.uint16), "BF16", GGMLType.F16).view(np.uint16)[0]) == f16


@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.BF16])
def test_f16_of_every_pattern(target: GGMLType) -> None:
    source = torch.from_numpy(PATTERNS.view(np.int16)).view(torch.float16).float()
    theirs = source if target is GGMLType.F32 else source.bfloat16()
    assert_same_but_nan(cast(PATTERNS.view(np.float16), "F16", target), theirs)


def test_f32_to_bf16_at_every_tie() -> None:
    out = cast(F32_EDGES.view(np.float32), "F32", GGMLType.BF16)
    assert_same_but_nan(out, torch.from_numpy(F32_EDGES.view(np.float32)).bfloat16())
    theirs = gguf.quants.quantize(F32_EDGES.view(np.float32), gguf.GGMLQuantizationType.BF16)
    assert out.tobytes() == theirs.tobytes()  # NaN included: quiet, sign and upper bits kept


def test_f32_to_f16_at_ties_and_ends() -> None:
    halves = PATTERNS.view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    middles = (halves + np.roll(halves, 1)) / 2
    ends = np.array([65504, 65519.996, 65520, 1e30, np.inf, np.nan], np.float32)
    values = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), ends, -ends])
    assert_same_but_nan(cast(values, "F32", GGMLType.F16), torch.from_numpy(values).half())


@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.F16, GGMLType.BF16])
def test_f64_goes_by_way_of_f32(target: GGMLType) -> None:
    values = np.random.default_rng(3).standard_normal(20_000) * 10.0 ** np.arange(-50, 50).repeat(200)
    dtype = {GGMLType.F32: torch.float32, GGMLType.F16: torch.float16, GGMLType.BF16: torch.bfloat16}[target]
    assert_same_but_nan(cast(values, "F64", target), torch.from_numpy(values).float().to(dtype))


@pytest.mark.parametrize("dtype", SOURCE_DTYPES)
@pytest.mark.parametrize("target", sorted(TARGET_TYPES))
def test_odd_values_give_no_warning(dtype: str, target: GGMLType) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0, 1] * 4, np.float32)
    if dtype == "BF16":
        values = (values.view(np.uint32) >> 16).astype(np.uint16)
    elif dtype == "F64":
        values = values.astype(np.float64) * 1e200
    elif dtype == "F16":
        values = np.array([np.nan, np.inf, -np.inf, 65504, 6e-8, 0, 1, -1] * 4, np.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cast(values, dtype, target)
