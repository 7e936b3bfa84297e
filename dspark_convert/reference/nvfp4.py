"""Weights in NVFP4, as NVIDIA's Model Optimizer saves them.

A matrix is E2M1 numbers, two in a byte with the first in the low bits; sixteen in a row share a scale in E4M3, and
all of them a scale in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

#: what the four bits of E2M1 stand for
NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)

#: numbers that share a scale
BLOCK = 16

#: what is put behind a matrix's name for its scales, and for that of the whole
SCALES, WHOLE = "_scale", "_scale_2"


def without_scales(views: Mapping[str, Any]) -> list[str]:
    """The names of all tensors but the scales of packed ones."""
    scales = {f"{name}{end}" for name in views if is_packed(views, name) for end in (SCALES, WHOLE)}
    return [name for name in views if name not in scales]


def unpacked_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 2 * shape[-1])


def is_packed(views: Mapping[str, Any], name: str) -> bool:
    """Whether the safetensors slice ``name`` holds packed numbers."""
    return bool(views[name].get_dtype() == "U8") and f"{name}{SCALES}" in views and f"{name}{WHOLE}" in views


def unpack(views: Mapping[str, Any], name: str) -> torch.Tensor:
    """[rows, columns] float64, which holds the products. Raises ValueError for scales of another shape or type."""
    packed, scales, whole = (views[f"{name}{end}"] for end in ("", SCALES, WHOLE))
    rows, half = packed.get_shape()
    if scales.get_shape() != [rows, 2 * half // BLOCK] or scales.get_dtype() != "F8_E4M3":
        raise ValueError(f"{name}{SCALES} has to be F8_E4M3 of shape {[rows, 2 * half // BLOCK]}.")
    if whole.get_dtype() != "F32" or whole.get_shape() not in ([], [1]):
        raise ValueError(f"{name}{WHOLE} has to be one number of type F32.")
    pairs = packed[...].int()
    numbers = torch.tensor(NUMBERS, dtype=torch.float64)[torch.stack((pairs & 15, pairs >> 4), -1).flatten(1)]
    unpacked: torch.Tensor = numbers * scales[...].double().repeat_interleave(BLOCK, 1) * whole[...].reshape(())
    return unpacked
