"""NVFP4: 16 E2M1 codes with one E4M3 scale, and one float32 scale for the whole tensor.

A checkpoint keeps pairs of neighbours, the first in the low nibble, and the scales apart. A GGUF
block is 4 scale bytes and 32 bytes of codes, 8 for each scale: byte j holds code j in its low nibble
and code j + 8 in its high one (36 bytes for 64 values). The tensor's own scale stays outside, in
a tensor ``<name>.scale``. ggml has no sign in the scales and reads 0x7F, which is NaN, as 0: both have
to be found before (``bad_scales``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors.fp8 import e4m3_table
from dspark_convert.tensors.mxfp4 import E2M1, halves_apart

QK = 64
BLOCK = np.dtype([("d", "V4"), ("q", "V32")])
NAN_SCALE = 0x7F

Bytes = NDArray[np.uint8]


def repack(packed: Bytes, scales: Bytes, out: Bytes | None = None) -> Bytes:
    """GGUF blocks (flat bytes) of ``packed`` [rows, columns / 2] and ``scales`` [rows, columns / 16].

    The number of columns is a multiple of 64. The sign bit of a scale is dropped.
    """
    n_blocks = scales.size // 4
    blocks = np.empty(n_blocks, BLOCK) if out is None else out.view(BLOCK)
    blocks["d"] = (scales & 0x7F).reshape(-1).view("V4")
    blocks["q"] = halves_apart(packed, np.uint32).view("V32")
    return blocks.view(np.uint8)


def bad_scales(scales: Bytes) -> int:
    """How many of a checkpoint's scales a GGUF cannot hold: NaN, or below zero."""
    return int(np.count_nonzero((scales & 0x7F == NAN_SCALE) | (scales > 0x80)))


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
