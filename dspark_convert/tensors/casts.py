"""Casts of flat blocks of numbers from a checkpoint's dtype to the type of a GGUF tensor.

BF16 has no numpy dtype, so its values travel as their uint16 bit patterns. A cast to the dtype
that the numbers already have is the identity, bit for bit (signalling NaNs too). All others go
by way of float32 and round to nearest, ties to even; F64 is rounded to float32 first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors import q8_0

Numbers = NDArray[Any]

#: numpy dtype that holds each safetensors dtype (little-endian, as in the file)
SOURCE_DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
#: the same for whole numbers, which only become I64
INTEGER_DTYPES: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")}
STORED_DTYPES = SOURCE_DTYPES | INTEGER_DTYPES
TARGET_TYPES = frozenset({GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0})

_NAN_QUIET_BIT = np.uint32(1 << 22)


def cast(values: Numbers, dtype: str, target: GGMLType) -> NDArray[np.uint8]:
    """Bytes of ``values`` (any shape, C-contiguous, dtype ``SOURCE_DTYPES[dtype]``) as ``target``.

    ``target`` is one of TARGET_TYPES; for Q8_0 the number of values is a multiple of 32.
    The result is flat and may share memory with ``values``. Values out of the target's range
    become infinite without a warning: see nonfinite.py.
    """
    flat = values.reshape(-1)
    if dtype == target.name:
        return flat.view(np.uint8)
    if (dtype, target) in _TABLES:
        return _looked_up(_TABLES[dtype, target](), flat).view(np.uint8)
    if target is GGMLType.Q8_0 and dtype == "BF16":
        return q8_0.quantize_bf16(flat)
    wide = to_f32(flat, dtype)
    if target is GGMLType.F32:
        return wide.view(np.uint8)
    if target is GGMLType.F16:
        with np.errstate(over="ignore"):
            return wide.astype("<f2").view(np.uint8)
    if target is GGMLType.BF16:
        return f32_to_bf16(wide).view(np.uint8)
    return q8_0.quantize(wide)


def to_f32(values: Numbers, dtype: str) -> NDArray[np.float32]:
    """``values`` (dtype ``SOURCE_DTYPES[dtype]``) as float32, same shape."""
    if dtype == "BF16":
        return bf16_to_f32(values)
    if dtype == "F16":
        return _looked_up(_f16_to_f32_table(), values)
    with np.errstate(over="ignore"):
        return values.astype(np.float32, copy=False)


def bf16_to_f32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """BF16 is the upper half of a float32."""
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def f32_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """BF16 bit patterns, nearest even; a NaN keeps its sign and upper bits and becomes quiet."""
    bits = values.view(np.uint32)
    rounded = (bits >> 16) & 1
    rounded += bits
    rounded += 0x7FFF
    nan = np.isnan(values)
    if nan.any():  # rounding could carry a NaN over into an infinity or a zero
        rounded[nan] = bits[nan] | _NAN_QUIET_BIT
    rounded >>= 16
    return rounded.astype("<u2")


@cache
def _bf16_to_f16_table() -> NDArray[np.float16]:
    """F16 value of each of the 65,536 BF16 bit patterns."""
    with np.errstate(over="ignore"):
        return bf16_to_f32(np.arange(1 << 16, dtype=np.uint16)).astype("<f2")


@cache
def _f16_to_f32_table() -> NDArray[np.float32]:
    """Float32 value of each of the 65,536 F16 bit patterns."""
    return np.arange(1 << 16, dtype=np.uint16).view("<f2").astype(np.float32)


@cache
def _f16_to_bf16_table() -> NDArray[np.uint16]:
    """BF16 bits of each of the 65,536 F16 bit patterns."""
    return f32_to_bf16(_f16_to_f32_table())


def _looked_up(table: NDArray[Any], values: Numbers) -> NDArray[Any]:
    """``table`` at the 16 bits of every value; numpy's own casts from and to F16 take twice as long."""
    # mode="wrap" is numpy's fastest: every uint16 is a valid index
    return np.take(table, values.view(np.uint16), mode="wrap")


_TABLES: dict[tuple[str, GGMLType], Callable[[], NDArray[Any]]] = {
    ("BF16", GGMLType.F16): _bf16_to_f16_table,
    ("F16", GGMLType.F32): _f16_to_f32_table,
    ("F16", GGMLType.BF16): _f16_to_bf16_table,
}
