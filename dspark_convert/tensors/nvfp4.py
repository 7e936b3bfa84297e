"""NVFP4: 16 E2M1 codes with one E4M3 scale, and one float32 scale for the whole tensor.

A checkpoint keeps pairs of neighbours, the first in the low nibble, and the scales apart. A GGUF
block is 4 scale bytes and 32 bytes of codes, 8 for each scale: byte j holds code j in its low nibble
and code j + 8 in its high one (36 bytes for 64 values). The tensor's own scale stays outside, in
a tensor ``<name>.scale``. ggml reads no sign in the scales, and 0x7F, which is NaN, as 0: that one has
to be found in ``scales``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors.fp8 import e4m3_table
from dspark_convert.tensors.mxfp4 import E2M1, halves_apart, unpack

QK = 64
BLOCK = np.dtype([("d", "V4"), ("q", "V32")])
#: values that share a scale
SHARED = 16
NAN_SCALE = 0x7F
#: the sign bit of a scale, and of the two codes in a byte
SIGN, CODE_SIGNS = np.uint8(0x80), np.uint8(0x88)

Bytes = NDArray[np.uint8]


def repack(packed: Bytes, scales: Bytes, out: Bytes | None = None) -> Bytes:
    """GGUF blocks (flat bytes) of ``packed`` [rows, columns / 2] and ``scales`` [rows, columns / 16].

    The number of columns is a multiple of 64. The sign of a scale goes into its codes, which changes no value.
    """
    blocks = np.empty(scales.size // 4, BLOCK) if out is None else out.view(BLOCK)
    negative = scales > SIGN
    if negative.any():  # no quantiser makes one, but they mean something
        packed = packed ^ np.where(negative, CODE_SIGNS, np.uint8(0)).repeat(8, axis=1)
    blocks["d"] = (scales & ~SIGN).reshape(-1).view("V4")
    blocks["q"] = halves_apart(packed, np.uint32).view("V32")
    return blocks.view(np.uint8)


def to_f32(packed: Bytes, scales: Bytes, factor: float) -> NDArray[np.float32]:
    """Float32 [rows, columns] of a checkpoint's ``packed`` and ``scales``, times ``factor``, rounded once."""
    values = _scaled(packed, scales)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        values *= np.float32(factor)
    return values


def to_f64(packed: Bytes, scales: Bytes, factor: float) -> NDArray[np.float64]:
    """The same exactly, in float64: what float32 cannot hold is not infinite."""
    with np.errstate(invalid="ignore"):
        exact: NDArray[np.float64] = _scaled(packed, scales).astype(np.float64) * factor
    return exact


def _scaled(packed: Bytes, scales: Bytes) -> NDArray[np.float32]:
    """Exact: a code has 2 significant bits, a scale 4."""
    values = unpack(packed)
    with np.errstate(invalid="ignore"):
        values.reshape(-1, SHARED)[...] *= e4m3_table()[scales.reshape(-1, 1)]
    return values


def dequantize(blocks: Bytes) -> NDArray[np.float32]:
    """Flat float32 of GGUF blocks, without the tensor's own scale; scale 0x7F gives NaN."""
    data = blocks.reshape(-1, BLOCK.itemsize)
    factors = e4m3_table()[data[:, :4] & 0x7F]
    codes = data[:, 4:].reshape(-1, 4, 8)
    values: NDArray[Any] = E2M1[np.concatenate([codes & 15, codes >> 4], axis=2)] * factors[:, :, None]
    return values.reshape(-1)


def scales(blocks: Bytes) -> Bytes:
    """The scale bytes [n_blocks, 4] of GGUF blocks."""
    return blocks.reshape(-1, BLOCK.itemsize)[:, :4]
