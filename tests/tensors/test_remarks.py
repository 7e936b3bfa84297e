from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import TensorJob
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.remarks import Remarks
from tests.tensors.jobs import job, source
from tests.tensors.reading import read
from tests.tensors.test_encoded import damaged, fp8


def remarks(made: TensorJob) -> list[tuple[str, str, str]]:
    read(made, 300, NonFinite(), found := Remarks())
    told = found.findings([made])
    assert all(finding.severity == "warning" and finding.fix for finding in told)
    assert not any("checkpoint" in finding.fix for finding in told)  # a port reads a GGUF
    return [(finding.rule, finding.where, finding.message.split(": ")[-1]) for finding in told]


@pytest.mark.parametrize("target", [GGMLType.Q4_0, GGMLType.MXFP4, GGMLType.Q8_0, GGMLType.F32])
def test_a_matrix_of_zeros(tmp_path: Path, target: GGMLType) -> None:
    """Whatever bytes the type has for them."""
    zeros = np.zeros((40, 32), np.float32)
    assert remarks(job(source(tmp_path / "w", zeros, "F32"), target)) == [("all-zero", "w", "all values are zero.")]
    zeros[-1, -1] = 1e-30
    assert remarks(job(source(tmp_path / "w", zeros, "F32"), target)) == []


def test_a_vector_of_zeros_is_usual(tmp_path: Path) -> None:
    assert remarks(job(source(tmp_path / "w", np.zeros(40, np.float32), "F32"), GGMLType.F32)) == []


def test_fp8_values_that_bf16_cannot_hold(tmp_path: Path) -> None:
    made, _ = fp8(tmp_path, columns=64, tile=(8, 32))
    assert made.scales
    damaged(made.scales, 5, 0)  # 2**-127: of rows 16 to 20, columns 32 to 63
    for at in range(16 * 64, 21 * 64):
        damaged(made.values, at, 0x38)  # 1
    job = TensorJob("o", GGMLType.BF16, (64, 21), (made,))
    assert remarks(job) == []  # BF16 goes down to 2**-133
    damaged(made.values, 17 * 64 + 40, 0x01)  # 2**-9
    damaged(made.values, 20 * 64 + 63, 0x81)
    damaged(made.values, 20 * 64 + 0, 0x01)  # beside the tile
    assert remarks(job) == [("bf16-inexact", "w", "2 of 1344 values are too small for BF16 and were rounded.")]
    assert remarks(TensorJob("o", GGMLType.F32, (64, 21), (made,))) == []
