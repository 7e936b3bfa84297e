"""FP8 and FP4 sources, read in units of any size, beside torch's casts and gguf-py's quantisers."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.tensors.reading import read

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
TARGETS = [GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0, GGMLType.MXFP4]


def stored(path: Path, data: np.ndarray, dtype: str) -> TensorRef:
    path.write_bytes(b"\xee" * 5 + data.tobytes() + b"\xee")
    return TensorRef(path.name, path, dtype, data.shape, 5, data.nbytes)


def fp8(
    directory: Path, rows: int = 21, columns: int = 96, tile: tuple[int, int] = (8, 40), name: str = "w", seed: int = 0
) -> tuple[Source, np.ndarray]:
    """A source and its values, float32 [rows, columns]."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 256, (rows, columns), np.uint8)
    codes[codes & 0x7F == 0x7F] = 0x38
    scales = random.integers(118, 124, (-(-rows // tile[0]), -(-columns // tile[1])), np.uint8)
    made = Source(
        stored(directory / name, codes, "F8_E4M3"),
        "fp8",
        stored(directory / f"{name}.scale", scales, "F8_E8M0"),
        tile,
    )
    return made, decoded(codes, scales, tile)


def decoded(codes: np.ndarray, scales: np.ndarray, tile: tuple[int, int]) -> np.ndarray:
    values = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().numpy()
    factors = 2.0 ** (scales.astype(np.float64) - 127)
    each = factors.repeat(tile[0], 0).repeat(tile[1], 1)[: codes.shape[0], : codes.shape[1]]
    return (values * each).astype(np.float32)


def fp4(directory: Path, rows: int = 9, columns: int = 96, name: str = "w", seed: int = 0) -> tuple[Source, np.ndarray]:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 16, (rows, columns), np.uint8)
    scales = random.integers(110, 130, (rows, columns // 32), np.uint8)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    made = Source(
        stored(directory / name, packed.view(np.int8), "I8"),
        "fp4",
        stored(directory / f"{name}.scale", scales, "F8_E8M0"),
        (1, 32),
    )
    return made, (E2M1[codes] * 2.0 ** (scales.astype(np.float64) - 127).repeat(32, 1)).astype(np.float32)


def quantized(values: np.ndarray, target: GGMLType) -> bytes:
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[target.name]).tobytes()


Maker = Callable[..., tuple[Source, np.ndarray]]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("unit_bytes", [1, 700, 5000, 1 << 19])
def test_fp8(tmp_path: Path, target: GGMLType, unit_bytes: int) -> None:
    made, values = fp8(tmp_path)
    assert read(TensorJob("o", target, (96, 21), (made,)), unit_bytes) == quantized(values, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("unit_bytes", [1, 700, 1 << 19])
def test_fp4(tmp_path: Path, target: GGMLType, unit_bytes: int) -> None:
    made, values = fp4(tmp_path)
    data = read(TensorJob("o", target, (96, 9), (made,)), unit_bytes)
    if target is GGMLType.MXFP4:  # the codes themselves: -0 too, and large scales over small codes
        blocks = np.frombuffer(data, np.uint8).reshape(-1, 17)
        codes = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], axis=1)
        assert (E2M1[codes] * 2.0 ** (blocks[:, :1].astype(np.float64) - 127)).astype(
            "f4"
        ).tobytes() == values.tobytes()
        back = gguf.quants.dequantize(blocks.reshape(9, -1), gguf.GGMLQuantizationType.MXFP4)
        assert np.array_equal(back, values)
    else:
        assert data == quantized(values, target)


@pytest.mark.parametrize(("make", "target"), [(fp8, GGMLType.Q8_0), (fp4, GGMLType.MXFP4), (fp4, GGMLType.Q8_0)])
@pytest.mark.parametrize("unit_bytes", [1, 1500, 1 << 19])
def test_experts_are_stacked(tmp_path: Path, make: Maker, target: GGMLType, unit_bytes: int) -> None:
    experts = [make(tmp_path, rows=10, name=f"e{n}", seed=n)[0] for n in range(4)]
    stack = read(TensorJob("o", target, (96, 10, 4), tuple(experts)), unit_bytes)
    assert stack == b"".join(read(TensorJob("o", target, (96, 10), (expert,))) for expert in experts)


@pytest.mark.parametrize("make", [fp8, fp4])
def test_padded_columns(tmp_path: Path, make: Maker) -> None:
    made, values = make(tmp_path, rows=7)
    job = TensorJob("o", GGMLType.F32, (100, 7), (made,), "pad_columns")
    assert read(job, 900) == np.pad(values, ((0, 0), (0, 4))).tobytes()


def damaged(ref: TensorRef, at: int, byte: int) -> None:
    with ref.path.open("r+b") as file:
        file.seek(ref.offset + at)
        file.write(bytes([byte]))


def told(job: TensorJob) -> list[tuple[str, str, str]]:
    read(job, 500, check := NonFinite())
    return [(found.rule, found.where, found.message.split(": ")[-1]) for found in check.findings()]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_a_code_that_is_nan(tmp_path: Path, target: GGMLType, code: int) -> None:
    made = [fp8(tmp_path, name=f"e{n}")[0] for n in range(3)]
    damaged(made[1].values, 20 * 96 + 95, code)
    job = TensorJob("o", target, (96, 21, 3), tuple(made))
    assert told(job) == [
        ("non-finite-values", "e1", "1 of 2016 values are NaN or infinite, the first (nan) at flat index 2015.")
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_a_scale_that_is_nan(tmp_path: Path, target: GGMLType) -> None:
    made, _ = fp8(tmp_path)
    assert made.scales
    damaged(made.scales, 2 * 3 + 1, 255)  # of rows 16 to 20, columns 40 to 79
    assert told(TensorJob("o", target, (96, 21), (made,))) == [
        (
            "non-finite-values",
            "w",
            f"200 of 2016 values are NaN or infinite, the first (nan) at flat index {16 * 96 + 40}.",
        )
    ]
    made, _ = fp4(tmp_path)
    assert made.scales
    damaged(made.scales, 8 * 3 + 2, 255)
    assert told(TensorJob("o", target, (96, 9), (made,))) == [
        (
            "non-finite-values",
            "w",
            f"32 of 864 values are NaN or infinite, the first (nan) at flat index {8 * 96 + 64}.",
        )
    ]


@pytest.mark.parametrize(
    ("target", "rule", "what"),
    [
        (GGMLType.F16, "f16-overflow", "F16"),
        (GGMLType.Q8_0, "f16-overflow", "the F16 scales of Q8_0"),
        (GGMLType.BF16, "bf16-overflow", "BF16"),
        (GGMLType.F32, "f32-overflow", "F32"),
    ],
)
def test_values_that_are_too_large(tmp_path: Path, target: GGMLType, rule: str, what: str) -> None:
    made, _ = fp8(tmp_path, columns=32, tile=(8, 32))
    assert made.scales
    damaged(made.scales, 1, 150 if rule == "f16-overflow" else 247)  # of rows 8 to 15
    for at in range(8 * 32, 16 * 32):
        damaged(made.values, at, 0x01)
    damaged(made.values, 300, 0xFE)  # -448
    ((found, where, message),) = told(TensorJob("o", target, (32, 21), (made,)))
    assert (found, where) == (rule, "w")
    assert message.startswith(f"1 of 672 values are too large for {what}, the first (-")
    assert message.endswith("at flat index 300.")


@pytest.mark.parametrize(
    ("scale", "code", "beyond"),
    [(252, 7, False), (253, 5, False), (253, 6, True), (253, 7, True), (254, 3, False), (254, 4, True)],
)
def test_an_mxfp4_value_beyond_float32(tmp_path: Path, scale: int, code: int, beyond: bool) -> None:
    """At run time it is a float32, whose numbers end below 2**128 = 4 * 2**(253 - 127)."""
    made, _ = fp4(tmp_path, columns=32)
    assert made.scales
    damaged(made.scales, 4, scale)
    for at in range(4 * 16, 5 * 16):
        damaged(made.values, at, 0)
    damaged(made.values, 4 * 16 + 3, code << 4)
    found = told(TensorJob("o", GGMLType.MXFP4, (32, 9), (made,)))
    assert found == (
        [("mxfp4-overflow", "w", "1 of 288 values are too large for MXFP4, the first (inf) at flat index 135.")]
        if beyond
        else []
    )


def test_scales_that_do_not_fit(tmp_path: Path) -> None:
    job = TensorJob("o", GGMLType.F32, (96, 21), (fp8(tmp_path)[0],))
    (good,) = job.sources
    assert good.scales
    for bad, words in (
        (replace(good, scales=None), r"tensor w needs scales of dtype F8_E8M0, but there are none\."),
        (replace(good, scales=replace(good.scales, dtype="F32")), r"but w\.scale is F32\."),
        (replace(good, tile=(8, 32)), ""),
        (replace(good, tile=(16, 40)), r"w\.scale has shape \[3, 3\], but the scales of w .* need \[2, 3\]\."),
        (replace(good, scales=replace(good.scales, nbytes=8)), "takes 9 bytes, but the header gives it 8"),
        (replace(good, encoding="fp4"), "no cast from F8_E4M3 to F32"),
    ):
        if words:
            with pytest.raises(InputError, match=words):
                read(replace(job, sources=(bad,)))
        else:  # 96 columns are 3 tiles of 32 as well as of 40
            read(replace(job, sources=(bad,)))


def test_a_scale_file_that_is_cut(tmp_path: Path) -> None:
    made, _ = fp4(tmp_path)
    assert made.scales
    with made.scales.path.open("r+b") as file:
        file.truncate(20)
    with pytest.raises(InputError, match=r"the file ends inside tensor w\.scale, which needs the bytes up to 32"):
        read(TensorJob("o", GGMLType.MXFP4, (96, 9), (made,)), 100)
