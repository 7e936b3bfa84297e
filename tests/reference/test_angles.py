"""RoPE's angles: the definition, and its rounding in float32 as a CPU's llama.cpp does it."""

from __future__ import annotations

from math import cos, sin

import numpy as np
import torch

from dspark_convert.reference.rotation import Rotation, angles

POSITIONS = torch.tensor([0, 1, 130, 4000])


def test_definition() -> None:
    found = angles(POSITIONS, 3, 100.0, float32=False)
    wanted = [[p * 100.0 ** (-i / 3) for i in range(3)] for p in POSITIONS.tolist()]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-15)


def test_float32_goes_up_from_pair_to_pair() -> None:
    half, theta = 16, 10_000.0
    found = angles(POSITIONS, half, theta, float32=True)
    step = np.float32(theta ** (-1 / half))
    for row, position in zip(found.numpy(), POSITIONS.tolist(), strict=True):
        turned = np.float32(position)
        for angle in row:
            assert angle == turned
            turned = np.float32(turned * step)
    exact = angles(POSITIONS, half, theta, float32=False)
    # at most half a unit in the last place a step, and something: otherwise this would not be needed
    np.testing.assert_allclose(found.numpy(), exact.numpy(), rtol=half * 2.0**-23)
    assert (found != exact).any()


def test_rotation_turns_entry_i_and_entry_i_plus_half() -> None:
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]], dtype=torch.float64)
    found = Rotation(100.0, 4).turn(x, torch.tensor([5]))[0, 0].tolist()
    first, second = 5.0, 5.0 * 100.0 ** (-1 / 2)
    wanted = [
        1 * cos(first) - 3 * sin(first),
        2 * cos(second) - 4 * sin(second),
        3 * cos(first) + 1 * sin(first),
        4 * cos(second) + 2 * sin(second),
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
