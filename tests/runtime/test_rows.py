"""A single wrong row is found below the noise of any type, and rounding alone is none."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.runtime.distance import distance
from dspark_convert.runtime.rows import wrong_row
from dspark_convert.tensors.precision import EXPLAINED

#: a table with a few short and zero rows, as padding leaves them
TABLE = np.random.default_rng(0).normal(0, 0.02, (10_000, 64)).astype(np.float32)
TABLE[9_000:9_100] = 0
TABLE[9_100:9_200] *= 1e-6


def rounded(kind: GGMLType) -> torch.Tensor:
    number = gguf.GGMLQuantizationType(int(kind))
    return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(TABLE, number), number))


@pytest.mark.parametrize("kind", [GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0, GGMLType.Q5_0, GGMLType.Q4_0])
def test_rounding_moves_no_row_far(kind: GGMLType) -> None:
    assert wrong_row(rounded(kind), torch.from_numpy(TABLE), EXPLAINED[kind]) is None


@pytest.mark.parametrize("kind", [GGMLType.F16, GGMLType.Q8_0, GGMLType.Q4_0])
@pytest.mark.parametrize("change", ["negated", "zero", "another", "nan"])
def test_one_wrong_row_is_found(kind: GGMLType, change: str) -> None:
    got, want = rounded(kind), torch.from_numpy(TABLE)
    got[7777] = {"negated": -got[7777], "zero": 0 * got[7777], "another": got[1], "nan": torch.nan * got[1]}[change]
    if change != "nan":
        assert distance(got, want) < EXPLAINED[GGMLType.Q4_0]  # the whole does not show it
    found = wrong_row(got, want, EXPLAINED[kind])
    assert found is not None
    assert found[0] == 7777


def test_coarse_types_show_rows_of_other_tokens() -> None:
    got, want = torch.from_numpy(TABLE).clone(), torch.from_numpy(TABLE)
    got[:100] += 0.6 * want[:100].flip(1)
    assert wrong_row(got, want, 0.7) is None
    got[5] = want[6]
    assert wrong_row(got, want, 0.7) is not None


def test_vectors_and_matrices_of_zeros_have_no_wrong_row() -> None:
    assert wrong_row(torch.ones(3), torch.zeros(3), 0.1) is None
    assert wrong_row(torch.zeros(3, 2), torch.zeros(3, 2), 0.1) is None
