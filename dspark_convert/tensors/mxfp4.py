"""MXFP4: 32 E2M1 codes with one E8M0 scale, as checkpoints pack them and as a GGUF does.

An E2M1 code means 0, 0.5, 1, 1.5, 2, 3, 4 or 6, bit 3 is the sign; a scale byte e means 2**(e - 127),
255 is NaN (OCP microscaling formats). A checkpoint keeps pairs of neighbours, the first in the low
nibble, and the scales apart. A GGUF block is the scale byte and 16 bytes, of which byte j holds code
j in its low nibble and code j + 16 in its high one (17 bytes). ggml doubles the code's value and
halves the scale, which is the same number, 2**-128 and subnormals included; but it reads scale 255
as 2**128, so a NaN has to be found in ``scales``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors.fp8 import e8m0_table
from dspark_convert.tensors.q8_0 import STEP, block_maxima
from dspark_convert.tensors.scratch import scratch

QK = 32
BLOCK = np.dtype([("e", "u1"), ("q", "V16")])
NAN_SCALE = 255

Bytes = NDArray[np.uint8]

#: the value of each E2M1 code
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def repack(packed: Bytes, scales: Bytes, out: Bytes | None = None) -> Bytes:
    """GGUF blocks (flat bytes) of ``packed`` [rows, columns / 2] and ``scales`` [rows, columns / 32]."""
    n_blocks = scales.size
    blocks = np.empty(n_blocks, BLOCK) if out is None else out.view(BLOCK)
    blocks["e"] = scales.reshape(-1)
    blocks["q"] = halves_apart(packed, np.uint64).view("V16")
    return blocks.view(np.uint8)


def to_f32(packed: Bytes, scales: Bytes, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Float32 [rows, columns] of a checkpoint's ``packed`` and ``scales``."""
    values = unpack(packed, out)
    with np.errstate(over="ignore", invalid="ignore"):
        values.reshape(-1, QK)[...] *= e8m0_table()[scales.reshape(-1, 1)]
    return values


def unpack(packed: Bytes, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """The values [rows, columns] of the codes ``packed`` [rows, columns / 2], float32, without their scales."""
    rows, half = packed.shape
    values = np.empty((rows, 2 * half), np.float32) if out is None else out
    pairs: NDArray[Any] = values.view(np.uint64)
    np.take(_pair_table(), packed, mode="wrap", out=pairs)
    return values


def dequantize(blocks: Bytes) -> NDArray[np.float32]:
    """Flat float32 of GGUF blocks; scale 255 gives NaN."""
    data = blocks.reshape(-1, BLOCK.itemsize)
    codes = np.concatenate([data[:, 1:] & 15, data[:, 1:] >> 4], axis=1)
    values = np.take(E2M1, codes, mode="wrap")
    with np.errstate(over="ignore", invalid="ignore"):
        values *= e8m0_table()[data[:, :1]]
    return values.reshape(-1)


def quantize(values: NDArray[np.float32], out: Bytes | None = None) -> Bytes:
    """GGUF blocks (flat bytes) of ``values``, whose number is a multiple of 32, as ggml makes them.

    The scale is 2**(floor(log2(max|x|)) - 2), not below 2**-127; a code is the nearest one, of two
    equally near ones that towards zero, and never -0. A block with a NaN or infinity gets scale 255.
    """
    blocks = np.empty(values.size // QK, BLOCK) if out is None else out.view(BLOCK)
    flat = values.reshape(-1)
    for start in range(0, flat.size, STEP):
        _quantize(flat[start : start + STEP], blocks[start // QK : (start + STEP) // QK])
    return blocks.view(np.uint8)


def _quantize(values: NDArray[np.float32], blocks: NDArray[Any]) -> None:
    a, b = (scratch(f"mxfp4.{name}", values.size, np.uint32) for name in "ab")
    maxima = block_maxima(values.view(np.uint32), a, b).view(np.float32)
    finite = np.isfinite(maxima)
    with np.errstate(divide="ignore", invalid="ignore"):
        # log2 rounded to float32, as ggml has it: just below a power of two it gives that power
        exponents = np.floor(np.log2(maxima.astype(np.float64)).astype(np.float32)) + np.float32(125)
        scales = np.where(finite, np.clip(exponents, 0, 254), NAN_SCALE).astype(np.uint8)
        inverse = np.where(finite, np.ldexp(1.0, 127 - scales.astype(np.int32)), 0).astype(np.float32)
        quotients = a.view(np.float32).reshape(-1, QK)
        np.multiply(values.reshape(-1, QK), inverse[:, None], out=quotients)
    # The thresholds between two codes have two bits of mantissa: the upper bits, rounded up, tell.
    a += np.uint32(0x1FFFFF)
    a >>= np.uint32(21)
    codes = np.take(_code_table(), a, mode="wrap").reshape(-1, QK)
    codes[~finite] = 0
    blocks["e"] = scales
    blocks["q"] = (codes[:, :16] | codes[:, 16:] << 4).view("V16").reshape(-1)


def scales(blocks: Bytes) -> Bytes:
    """The scale bytes [n_blocks] of GGUF blocks."""
    e: NDArray[Any] = blocks.view(BLOCK)["e"]
    return e


def halves_apart(packed: Bytes, word: type[np.unsignedinteger[Any]]) -> Bytes:
    """The codes of each two words of ``packed`` (n bytes each), in the order that ggml keeps them in.

    Byte j of the 2n has code j in the low nibble and code j + 2n in the high one; flat bytes.
    """
    words = packed.reshape(-1).view(word).reshape(-1, 2)
    first, second = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
    low = word(0x0F0F0F0F0F0F0F0F & np.iinfo(word).max)
    even = (second & low) << word(4)
    even |= first & low
    odd = first >> word(4)
    odd &= low
    odd |= second & ~low
    pairs: NDArray[np.uint16] = odd.view(np.uint8).astype("<u2")
    pairs <<= 8
    pairs |= even.view(np.uint8)
    mixed: Bytes = pairs.view(np.uint8)
    return mixed


@cache
def _pair_table() -> NDArray[np.uint64]:
    """For each packed byte its two values, float32, as one word."""
    byte = np.arange(256)
    return np.stack([E2M1[byte & 15], E2M1[byte >> 4]], axis=1).view(np.uint64).reshape(256)


@cache
def _code_table() -> Bytes:
    """For the upper 11 bits of a float32, rounded up: the code of the number."""
    upper = (np.arange(1 << 10, dtype=np.uint32) << 21).view(np.float32)
    thresholds = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
    magnitude = (upper[:, None] > thresholds).sum(axis=1).astype(np.uint8)
    return np.concatenate([magnitude, np.where(magnitude > 0, magnitude | 8, 0).astype(np.uint8)])
