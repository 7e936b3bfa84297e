"""In which precision and memory tensors are kept."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from dspark_convert.reference.weights import Weights, as_tensor

THIRD = torch.full((2, 3), 1 / 3, dtype=torch.bfloat16)


def test_small_models_are_widened_once() -> None:
    weights = Weights({"a": THIRD})
    assert weights["a"].dtype == weights.rows("a", torch.tensor([1])).dtype == torch.float64
    assert weights["a"].data_ptr() == weights["a"].data_ptr()
    assert weights["a"][0, 0].item() == 0.333984375  # 171 / 512, the nearest bfloat16


def test_large_models_stay_in_their_file_s_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_convert.reference.weights.SMALL", 6)
    weights = Weights({"a": THIRD})
    first, second = weights["a"], weights["a"]
    assert first.dtype == weights.rows("a", torch.tensor([1])).dtype == torch.float32
    assert first.data_ptr() != second.data_ptr()
    assert weights.get("b") is None


def test_read_only_arrays_are_copied_silently() -> None:
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = as_tensor(array)
    tensor += 1
    assert array[0, 0] == 0
    assert as_tensor(THIRD) is THIRD
