"""Rows taken apart, offsets made ids, a row replaced, bytes as given: each beside what numpy or torch makes of it."""

from __future__ import annotations

import hashlib
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
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.quantize import quantize
from dspark_convert.tensors.remarks import Remarks
from tests.tensors.jobs import numbers, source
from tests.tensors.reading import read
from tests.tensors.test_blocks import quantised
from tests.tensors.test_encoded import fp4, fp8
from tests.writing.filling import START, as_f32, run

FLOATS = [GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0]


def order(rows: int, head_dim: int) -> np.ndarray:
    """Which row of the checkpoint each row of the tensor is, by loops: of each head 0, 2, 4, ..., 1, 3, 5, ..."""
    taken = []
    for head in range(0, rows, head_dim):
        taken += [head + i for i in range(0, head_dim, 2)]
        taken += [head + i for i in range(1, head_dim, 2)]
    return np.array(taken)


def as_type(values: np.ndarray, target: GGMLType) -> bytes:
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[target.name]).tobytes()


def unpair(one: Source, target: GGMLType, head_dim: int) -> TensorJob:
    return TensorJob("out", target, one.shape[::-1], (one,), "unpair", head_dim=head_dim)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32", "F64"])
@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("unit_bytes", [1, 5000, 1 << 19])
def test_unpaired_matrices(tmp_path: Path, dtype: str, target: GGMLType, unit_bytes: int) -> None:
    values = numbers(dtype, (5 * 8, 96))
    made = unpair(Source(source(tmp_path / "w", values, dtype)), target, 8)
    assert read(made, unit_bytes) == as_type(as_f32(values, dtype)[order(40, 8)], target)


@pytest.mark.parametrize("rows", [32, 96])
@pytest.mark.parametrize("target", FLOATS)
def test_unpaired_vectors(tmp_path: Path, rows: int, target: GGMLType) -> None:
    """Norms of the size of a head or of all heads."""
    values = numbers("BF16", (rows,))
    made = unpair(Source(source(tmp_path / "w", values, "BF16")), target, 32)
    assert read(made, 1) == as_type(as_f32(values, "BF16")[order(rows, 32)], target)


def test_unpaired_pairs_turn_as_the_rotary_embedding_of_pairs_does(tmp_path: Path) -> None:
    """Scores of queries and keys are the same: interleaved before, in halves after."""
    heads, dim, width = 3, 16, 24
    weights = [np.random.default_rng(seed).standard_normal((heads * dim, width), np.float32) for seed in (0, 1)]
    moved = []
    for name, weight in zip("qk", weights, strict=True):
        made = unpair(Source(source(tmp_path / name, weight, "F32")), GGMLType.F32, dim)
        moved.append(np.frombuffer(bytearray(read(made)), np.float32).reshape(heads * dim, width))
    x = torch.randn(5, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    angles = torch.arange(5)[:, None] * 1e4 ** -(torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def interleaved(weight: np.ndarray) -> torch.Tensor:
        pairs = (x @ torch.from_numpy(weight).double().T).reshape(5, heads, dim // 2, 2)
        return torch.view_as_real(torch.view_as_complex(pairs) * turn).flatten(2)

    def in_halves(weight: np.ndarray) -> torch.Tensor:
        first, second = (x @ torch.from_numpy(weight).double().T).reshape(5, heads, dim).chunk(2, -1)
        turned = torch.complex(first, second) * turn
        return torch.cat([turned.real, turned.imag], -1)

    scores = [
        torch.einsum("thd,shd->hts", *map(rope, pair)) for rope, pair in ((interleaved, weights), (in_halves, moved))
    ]
    torch.testing.assert_close(*scores, rtol=1e-12, atol=1e-12)
    wrong = torch.einsum("thd,shd->hts", *map(in_halves, weights))
    assert (wrong - scores[0]).abs().max() > 1


def test_unpaired_bf16_is_moved_bit_by_bit(tmp_path: Path) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).reshape(1 << 8, 1 << 8)  # every NaN too
    made = unpair(Source(source(tmp_path / "w", values, "BF16")), GGMLType.BF16, 64)
    assert read(made, 100) == values[order(256, 64)].tobytes()


@pytest.mark.parametrize("make", [fp8, fp4])
@pytest.mark.parametrize("target", [*FLOATS, GGMLType.MXFP4, GGMLType.Q4_0])
def test_unpaired_codes(tmp_path: Path, make: object, target: GGMLType) -> None:
    one, values = make(tmp_path, rows=24)  # type: ignore[operator]
    plain = Source(source(tmp_path / "plain", values, "F32"))
    if make is fp4 and target is GGMLType.MXFP4:  # the codes are moved
        straight = np.frombuffer(read(TensorJob("o", target, (96, 24), (one,))), np.uint8).reshape(24, -1)
        assert read(unpair(one, target, 8), 1) == straight[order(24, 8)].tobytes()
    else:
        assert read(unpair(one, target, 8), 1) == read(unpair(plain, target, 8))


def test_a_bad_value_is_told_where_it_stands_in_the_checkpoint(tmp_path: Path) -> None:
    values = numbers("F32", (16, 32))
    values[13, 5] = np.nan
    made = unpair(Source(source(tmp_path / "w", values, "F32")), GGMLType.Q8_0, 8)
    read(made, 1, check := NonFinite())
    (finding,) = check.findings()
    assert f"1 of 512 values are NaN or infinite, the first (nan) at flat index {13 * 32 + 5}" in finding.message


@pytest.mark.parametrize(
    ("shape", "head_dim"), [((12, 32), 8), ((16, 32), 0), ((15, 32), 5), ((16, 32), 1), ((48,), 16)]
)
def test_rows_that_are_no_heads(tmp_path: Path, shape: tuple[int, ...], head_dim: int) -> None:
    made = unpair(Source(source(tmp_path / "w", numbers("F32", shape), "F32")), GGMLType.Q8_0, head_dim)
    with pytest.raises(InputError, match=rf"^tensor out: {shape[0]} rows are no heads of {head_dim} rows each"):
        read(made)


def integers(path: Path, values: np.ndarray, dtype: str, encoding: str = "plain") -> Source:
    data = values.astype({"I32": "<i4", "I64": "<i8"}[dtype]).tobytes()
    path.write_bytes(b"\xff" * 3 + data)
    return Source(TensorRef(path.name, path, dtype, values.shape, 3, len(data)), encoding)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["I32", "I64"])
@pytest.mark.parametrize("encoding", ["plain", "ggml"])
@pytest.mark.parametrize("unit_bytes", [1, 1000, 1 << 19])
def test_offsets_become_ids(tmp_path: Path, dtype: str, encoding: str, unit_bytes: int) -> None:
    ids = np.sort(np.random.default_rng(0).choice(250_000, 3000, replace=False))
    one = integers(tmp_path / "d2t", ids - np.arange(3000), dtype, encoding)
    assert read(TensorJob("d2t", GGMLType.I64, (3000,), (one,), "absolute_ids"), unit_bytes) == ids.tobytes()


@pytest.mark.parametrize("dtype", ["I32", "I64"])
def test_ids_are_copied(tmp_path: Path, dtype: str) -> None:
    ids = np.array([3, -1, 2**31 - 1, 0])
    one = integers(tmp_path / "d2t", ids, dtype)
    assert read(TensorJob("d2t", GGMLType.I64, (4,), (one,))) == ids.tobytes()


def test_what_gives_no_ids(tmp_path: Path) -> None:
    table = integers(tmp_path / "t", np.zeros((2, 4)), "I64")
    vector = integers(tmp_path / "v", np.zeros(4), "I64")
    floats = Source(source(tmp_path / "f", numbers("F32", (4,)), "F32"))
    for made, words in (
        (TensorJob("d2t", GGMLType.I64, (4, 2), (table,), "absolute_ids"), "give no I64 vector"),
        (TensorJob("d2t", GGMLType.I64, (4, 2), (vector, vector), "absolute_ids"), "of 2 tensors give no I64 vector"),
        (TensorJob("d2t", GGMLType.F32, (4,), (vector,), "absolute_ids"), "give no F32 vector"),
        (TensorJob("d2t", GGMLType.F32, (4,), (vector,)), "no cast from I64 to F32"),
        (TensorJob("d2t", GGMLType.I64, (4,), (floats,), "absolute_ids"), "no cast from F32 to I64"),
        (TensorJob("d2t", GGMLType.I64, (5,), (vector,), "absolute_ids"), r"shape \[4\] does not give \[5\]"),
    ):
        with pytest.raises(InputError, match=words):
            read(made)


def patched(table: Source, target: GGMLType, row: int, patch: TensorRef) -> TensorJob:
    return TensorJob("embd", target, table.shape[::-1], (table,), "patch_row", row=row, patch=patch)


@pytest.mark.parametrize("row", [0, 3, 8])
@pytest.mark.parametrize("target", [*FLOATS, GGMLType.Q4_K])
@pytest.mark.parametrize("unit_bytes", [1, 1500, 1 << 19])
def test_a_row_is_replaced(tmp_path: Path, row: int, target: GGMLType, unit_bytes: int) -> None:
    values, other = numbers("BF16", (9, 256)), numbers("F32", (256,), 7)
    made = patched(
        Source(source(tmp_path / "w", values, "BF16")), target, row, source(tmp_path / "patch", other, "F32")
    )
    expected = as_f32(values, "BF16")
    expected[row] = other
    assert read(made, unit_bytes) == quantize(expected, target).tobytes()


@pytest.mark.parametrize("name", ["Q8_0", "Q6_K"])
def test_a_row_of_a_quantised_table_is_replaced(tmp_path: Path, name: str) -> None:
    """The other rows are moved as they stand."""
    kind = GGMLType[name]
    table, _ = quantised(tmp_path / "w", kind, (20, 512))
    other = numbers("BF16", (512,), 7)
    made = patched(table, kind, 4, source(tmp_path / "patch", other, "BF16"))
    rows = np.frombuffer(table.values.path.read_bytes()[24:-8], np.uint8).reshape(20, -1).copy()
    rows[4] = quantize(as_f32(other, "BF16")[None], kind)
    assert read(made, 700) == rows.tobytes()


def test_a_bad_or_empty_patch_is_told_by_its_own_name(tmp_path: Path) -> None:
    table = Source(source(tmp_path / "w", numbers("F32", (4, 64)), "F32"))
    other = np.zeros(64, np.float32)
    made = patched(table, GGMLType.Q8_0, 2, source(tmp_path / "patch", other, "F32"))
    remarks = Remarks()
    read(made, 1, None, remarks)
    assert [(found.rule, found.where) for found in remarks.findings([made])] == [("all-zero", "patch")]
    other[9] = np.inf
    made = patched(table, GGMLType.Q8_0, 2, source(tmp_path / "patch", other, "F32"))
    read(made, 1, check := NonFinite())
    (finding,) = check.findings()
    assert finding.where == "patch"
    assert finding.message.endswith("1 of 64 values are NaN or infinite, the first (inf) at flat index 9.")


def test_a_patch_that_does_not_fit(tmp_path: Path) -> None:
    table = Source(source(tmp_path / "w", numbers("F32", (4, 64)), "F32"))
    made = patched(table, GGMLType.Q8_0, 2, source(tmp_path / "patch", numbers("F32", (64,)), "F32"))
    assert made.patch
    coarse, _ = quantised(tmp_path / "q", GGMLType.Q8_0, (20, 512))
    for bad, words in (
        (replace(made, row=4), r"no row 4 in \[4, 64\] that could be replaced"),
        (replace(made, row=-1), "no row -1"),
        (replace(made, patch=None), r"needs the shape \[64\], but it is none"),
        (replace(made, patch=replace(made.patch, shape=(32,))), r"needs the shape \[64\], but it is \[32\]"),
        (replace(made, patch=replace(made.patch, nbytes=8)), "tensor patch: F32 .* takes 256 bytes, but .* gives it 8"),
        (replace(made, patch=replace(made.patch, dtype="I64")), "tensor patch: no cast from I64 to Q8_0"),
        (patched(coarse, GGMLType.IQ2_XXS, 1, replace(made.patch, shape=(512,))), "no cast from Q8_0 to IQ2_XXS"),
    ):
        with pytest.raises(InputError, match=words):
            read(bad)


@pytest.mark.parametrize("unit_bytes", [1, 7, 1 << 19])
def test_bytes_as_they_are_given(unit_bytes: int) -> None:
    factors = np.array([1, 1e30, 0.5, np.pi], "<f4").tobytes()
    made = TensorJob("rope_freqs.weight", GGMLType.F32, (4,), (), "literal", literal=factors)
    assert read(made, unit_bytes) == factors
    with pytest.raises(InputError, match=r"tensor rope_freqs\.weight: F32 \[4\] .* takes 16 bytes, but it is given 12"):
        read(replace(made, literal=factors[:12]))


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_give_the_same_bytes(tmp_path: Path, threads: int) -> None:
    weights = Source(source(tmp_path / "w", numbers("BF16", (64, 256)), "BF16"))
    made = [
        unpair(weights, GGMLType.BF16, 16),
        unpair(weights, GGMLType.Q4_K, 16),
        patched(weights, GGMLType.F16, 33, source(tmp_path / "patch", numbers("F32", (256,)), "F32")),
        TensorJob("d2t", GGMLType.I64, (999,), (integers(tmp_path / "d", np.arange(999), "I64"),), "absolute_ids"),
        TensorJob("rope_freqs.weight", GGMLType.F32, (8,), (), "literal", literal=bytes(range(32))),
    ]
    digest = hashlib.sha256()
    filled = run(tmp_path / "o", made, threads=threads, unit_bytes=999, digest=digest, tensor_digests=True)
    assert filled.sha256 == tuple(hashlib.sha256(read(each)).hexdigest() for each in made)
    assert digest.hexdigest() == hashlib.sha256((tmp_path / "o").read_bytes()[START:]).hexdigest()
