"""How a tensor is cut. What comes of the units is in test_stream.py and test_encoded.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Encoding, Source, TensorJob, Transform
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.units import UNIT_BYTES, units


def source(dtype: str, shape: tuple[int, ...], encoding: Encoding = "plain") -> Source:
    nothing = TensorRef("w", Path("w"), dtype, shape, 0, 0)
    return Source(nothing, encoding, None if encoding == "plain" else nothing, (128, 128))


CASES: list[tuple[Source, GGMLType, Transform, int]] = [
    (source("BF16", (3000, 1000)), GGMLType.BF16, "copy", 1),
    (source("BF16", (3000, 1000)), GGMLType.F32, "copy", 1),
    (source("F64", (3000, 1000)), GGMLType.F16, "copy", 1),
    (source("BF16", (3000, 1024)), GGMLType.Q8_0, "copy", 32),
    (source("BF16", (3000, 1024)), GGMLType.Q4_K, "copy", 1024),
    (source("BF16", (3000, 1000)), GGMLType.Q8_0, "pad_columns", 1000),
    (source("F8_E4M3", (3000, 1024), "fp8"), GGMLType.BF16, "copy", 1024),
    (source("F8_E4M3", (3000, 1024), "fp8"), GGMLType.Q8_0, "copy", 1024),
    (source("I8", (3000, 512), "fp4"), GGMLType.MXFP4, "copy", 1024),
    (source("I8", (3000, 512), "fp4"), GGMLType.Q4_K, "copy", 1024),
    (source("U8", (3000, 512), "nvfp4"), GGMLType.NVFP4, "copy", 1024),
    (source("U8", (3000, 512), "nvfp4"), GGMLType.BF16, "copy", 1024),
]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize(("one", "target", "transform", "grain"), CASES)
def test_units_follow_each_other_and_hold_whole_grains(
    one: Source, target: GGMLType, transform: Transform, grain: int, number: int
) -> None:
    columns = -(-one.shape[-1] // 1024) * 1024 if transform == "pad_columns" else one.shape[-1]
    shape = (columns, 3000) if number == 1 else (columns, 3000, number)
    job = TensorJob("o", target, shape, (one,) * number, transform)
    offset, done = 0, dict.fromkeys(range(number), 0)
    for unit in units(job):
        assert (unit.offset, unit.start) == (offset, done[unit.source])
        assert unit.count % grain == 0
        assert 0 < unit.nbytes <= UNIT_BYTES * columns / one.shape[-1]
        offset += unit.nbytes
        done[unit.source] += unit.count
    assert offset == job.nbytes
    assert set(done.values()) == {3000 * one.shape[-1]}
    sizes = [unit.nbytes for unit in units(job)][:-1]
    assert min(sizes[:1] + sizes[1:3]) >= 64 << 10  # smaller writes are slower


def test_units_of_rows_taken_apart_are_whole_heads_and_few_of_them() -> None:
    job = TensorJob("o", GGMLType.BF16, (1000, 3200), (source("BF16", (3200, 1000)),), "unpair", head_dim=64)
    cut = list(units(job))
    assert [unit.start for unit in cut] == [sum(each.count for each in cut[:index]) for index in range(len(cut))]
    assert {unit.count % 64_000 for unit in cut} == {0}
    assert {unit.count // 64_000 for unit in cut[:-1]} == {UNIT_BYTES // 128_000}
    assert sum(unit.nbytes for unit in cut) == job.nbytes


def test_units_go_round_a_row_that_is_replaced() -> None:
    table, patch = source("BF16", (3000, 1000)), source("F32", (1000,)).values
    job = TensorJob("o", GGMLType.F16, (1000, 3000), (table,), "patch_row", row=1234, patch=patch)
    cut = list(units(job))
    (new,) = (unit for unit in cut if unit.source == 1)
    assert (new.start, new.count, new.offset, new.nbytes) == (0, 1000, 1234 * 2000, 2000)
    rows = [
        row for unit in cut if not unit.source for row in range(unit.start // 1000, (unit.start + unit.count) // 1000)
    ]
    assert rows == [row for row in range(3000) if row != 1234]
    assert [unit.offset for unit in cut] == [sum(each.nbytes for each in cut[:index]) for index in range(len(cut))]


def test_a_row_larger_than_a_unit_is_one() -> None:
    job = TensorJob("o", GGMLType.Q4_K, (1 << 20, 3), (source("F32", (3, 1 << 20)),))
    assert [unit.count for unit in units(job)] == [1 << 20] * 3


def test_zeros_and_nothing() -> None:
    zeros = TensorJob("o", GGMLType.F32, (1 << 20,), (), "zeros")
    assert sum(unit.nbytes for unit in units(zeros)) == 4 << 20
    assert list(units(TensorJob("o", GGMLType.F32, (0, 5), (source("F32", (5, 0)),)))) == []
