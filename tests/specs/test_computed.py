"""Tensors that follow from sizes."""

from __future__ import annotations

import numpy as np
import pytest

from dspark_convert.specs.computed import HOW, proportional_rope
from dspark_convert.specs.load import load_specs


@pytest.mark.parametrize(("head_dim", "rotated"), [(512, 128), (32, 32), (32, 2), (32, 0)])
def test_proportional_rope_lets_the_first_pairs_turn(head_dim: int, rotated: int) -> None:
    data = np.frombuffer(proportional_rope({"head_dim": head_dim, "rope_rotated": rotated}), "<f4")
    assert data.shape == (head_dim // 2,)
    assert (data[: rotated // 2] == 1).all()
    # divided by so much an angle is zero at every position there is
    assert (2.0**31 / data[rotated // 2 :] < 1e-9).all()


def test_specs_name_what_there_is() -> None:
    assert {rule.how for spec in load_specs() for rule in spec.computed} <= HOW.keys()
