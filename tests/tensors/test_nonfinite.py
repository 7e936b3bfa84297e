from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors.nonfinite import NonFinite, is_finite
from dspark_convert.tensors.quantize import F16_SCALES, WRITABLE
from tests.tensors.jobs import job, source
from tests.tensors.reading import read

PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("target", [GGMLType.F16, GGMLType.BF16])
def test_every_16_bit_pattern_beside_clean_ones(target: GGMLType) -> None:
    wide = PATTERNS.view(np.float16) if target is GGMLType.F16 else (PATTERNS.astype(np.uint32) << 16).view(np.float32)
    block = np.array([0, 0x8001, 0x3F80, 0xC000], np.uint16)
    for pattern, finite in zip(PATTERNS, np.isfinite(wide), strict=True):
        block[1] = pattern
        assert is_finite(block.view(np.uint8), target) == finite


@pytest.mark.parametrize(
    ("bits", "finite"),
    [
        (0x7F7FFFFF, True),
        (0xFF7FFFFF, True),
        (0x80000000, True),
        (0x7F800000, False),
        (0xFF800000, False),
        (0x7F800001, False),
        (0xFFFFFFFF, False),
        (0x7FFFFFFF, False),
    ],
)
def test_f32_edges(bits: int, finite: bool) -> None:
    assert is_finite(np.array([0, bits, 0xBF800000], np.uint32).view(np.uint8), GGMLType.F32) == finite


def scan(path: Path, values: np.ndarray, dtype: str, target: GGMLType, **more: object) -> list[tuple[str, str, str]]:
    """(rule, where, message) of each finding, read in blocks of a few values."""
    check = NonFinite()
    read(job(source(path, values, dtype), target, **more), 256, check)  # type: ignore[arg-type]
    found = check.findings()
    assert bool(check) == bool(found)
    assert all(finding.severity == "error" and finding.fix for finding in found)
    return [(finding.rule, finding.where, finding.message) for finding in found]


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F64"])
@pytest.mark.parametrize("target", [GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0])
def test_count_and_first_index(tmp_path: Path, dtype: str, target: GGMLType) -> None:
    values = np.ones((50, 64), np.float32)
    values[30, 7], values[30, 8], values[49, 63] = -np.inf, np.nan, np.inf
    numbers = (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "BF16" else values
    file = tmp_path / "w.weight"
    assert scan(file, numbers, dtype, target) == [
        (
            "non-finite-values",
            "w.weight",
            f"{file}: 3 of 3200 values are NaN or infinite, the first (-inf) at flat index {30 * 64 + 7}.",
        )
    ]


@pytest.mark.parametrize(
    ("dtype", "target", "largest", "smallest_bad", "rule", "what"),
    [
        ("F32", GGMLType.F16, 65519.0, 65520.0, "f16-overflow", "F16"),
        ("BF16", GGMLType.F16, 65280.0, 65536.0, "f16-overflow", "F16"),
        ("F32", GGMLType.Q8_0, 127 * 65519.0, 127 * 65520.0, "f16-overflow", "the F16 scales of Q8_0"),
        ("F32", GGMLType.BF16, 3.38e38, 3.4e38, "bf16-overflow", "BF16"),
        ("F64", GGMLType.F32, 3.4e38, 3.5e38, "f32-overflow", "F32"),
    ],
)
def test_overflow(
    tmp_path: Path, dtype: str, target: GGMLType, largest: float, smallest_bad: float, rule: str, what: str
) -> None:
    values = np.zeros((50, 64))
    values[0, 0] = largest
    values[20, 3] = -smallest_bad
    values[41, 0] = smallest_bad

    def stored(numbers: np.ndarray) -> np.ndarray:
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) if dtype == "BF16" else numbers

    file = tmp_path / "w.weight"
    first = f"the first ({-smallest_bad:g}) at flat index {20 * 64 + 3}."
    assert scan(file, stored(values), dtype, target) == [
        (rule, "w.weight", f"{file}: 2 of 3200 values are too large for {what}, {first}")
    ]
    values[[20, 41]] = 0
    assert scan(file, stored(values), dtype, target) == []


def test_both_kinds_in_one_tensor(tmp_path: Path) -> None:
    values = np.zeros((4, 32), np.float32)
    values[1, 1], values[2, 2] = 1e6, np.nan
    found = scan(tmp_path / "w", values, "F32", GGMLType.F16)
    assert [rule for rule, _, _ in found] == ["non-finite-values", "f16-overflow"]
    assert "1 of 128 values are NaN or infinite, the first (nan) at flat index 66" in found[0][2]
    assert "1 of 128 values are too large for F16, the first (1e+06) at flat index 33" in found[1][2]


def test_the_index_is_one_of_the_source_when_rows_are_padded(tmp_path: Path) -> None:
    values = np.zeros((9, 5), np.float32)
    values[7, 2] = np.nan
    found = scan(tmp_path / "w", values, "F32", GGMLType.Q8_0, shape=(32, 9), transform="pad_columns")
    assert "at flat index 37" in found[0][2]


@pytest.mark.parametrize("target", sorted(WRITABLE - {GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0}))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_every_type_with_a_bad_value_late(tmp_path: Path, target: GGMLType, bad: float) -> None:
    values = np.random.default_rng(0).standard_normal((9, 512)).astype(np.float32)
    assert scan(tmp_path / "w", values, "F32", target) == []
    values[8, 510] = bad
    file = tmp_path / "w"
    assert scan(file, values, "F32", target) == [
        (
            "non-finite-values",
            "w",
            f"{file}: 1 of 4608 values are NaN or infinite, the first ({bad}) at flat index {8 * 512 + 510}.",
        )
    ]


@pytest.mark.parametrize("target", sorted(F16_SCALES))
@pytest.mark.parametrize("huge", [1e9, -1e11, 3e38])
def test_values_too_large_for_the_f16_scales_of_every_type(tmp_path: Path, target: GGMLType, huge: float) -> None:
    values = np.random.default_rng(0).standard_normal((9, 512)).astype(np.float32)
    values[7, 300] = huge
    file = tmp_path / "w"
    ((rule, where, message),) = scan(file, values, "F32", target)
    assert (rule, where) == ("f16-overflow", "w")
    what = f"the F16 scales of {target.name}"
    index = 7 * 512 + 300
    assert message == f"{file}: 1 of 4608 values are too large for {what}, the first ({huge:g}) at flat index {index}."
