"""Stored values back to float32: the types in which targets keep their embeddings and heads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors.casts import SOURCE_DTYPES, to_f32

#: names of safetensors dtypes and ggml types that ``dequantise`` reads
READABLE = frozenset({*SOURCE_DTYPES, "Q8_0", "Q6_K"})


def dequantise(data: bytes | memoryview, kind: str) -> NDArray[np.float32]:
    """The values of ``data`` (whole blocks of ``kind``, one of READABLE), flat float32."""
    if kind == "Q8_0":
        return _q8_0(np.frombuffer(data, np.uint8).reshape(-1, 34))
    if kind == "Q6_K":
        return _q6_k(np.frombuffer(data, np.uint8).reshape(-1, 210))
    return to_f32(np.frombuffer(data, SOURCE_DTYPES[kind]), kind)


def _q8_0(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """32 values d * q: d as f16, then q as int8."""
    return (_f16(blocks[:, :2]) * blocks[:, 2:].view(np.int8)).reshape(-1)


def _q6_k(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """256 values d * s * (q - 32) with a scale s for every 16: 128 bytes of low nibbles, 64 of
    upper bit pairs, 16 of s, then d as f16. Each half of 128 values has 64 bytes of nibbles (low
    ones first) and 32 of bit pairs (lowest first)."""
    low = blocks[:, :128].reshape(-1, 2, 1, 64) >> _shifts(0, 4) & 15
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> _shifts(0, 2, 4, 6) & 3
    q = (low.reshape(-1, 16, 16) | high.reshape(-1, 16, 16) << 4).astype(np.int8) - np.int8(32)
    scales = _f16(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8)
    values: NDArray[np.float32] = (scales[:, :, None] * q).reshape(-1)
    return values


def _shifts(*bits: int) -> NDArray[np.uint8]:
    return np.array(bits, np.uint8)[:, None]


def _f16(data: NDArray[np.uint8]) -> NDArray[Any]:
    """Two bytes a row as float32 [rows, 1]."""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)
