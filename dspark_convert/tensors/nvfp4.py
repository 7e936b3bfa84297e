"""NVFP4: 16 E2M1 codes with one E4M3 scale, and one float32 scale for the whole tensor.

A GGUF block is 4 scale bytes and 32 bytes of codes, 8 for each scale: byte j holds code j in its low nibble
and code j + 8 in its high one (36 bytes for 64 values). The tensor's own scale stays outside, in
a tensor ``<name>.scale``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors.fp8 import e4m3_table
from dspark_convert.tensors.mxfp4 import E2M1

BLOCK_BYTES = 36

Bytes = NDArray[np.uint8]


def dequantize(blocks: Bytes) -> NDArray[np.float32]:
    """Flat float32 of GGUF blocks, without the tensor's own scale; scale 0x7F gives NaN."""
    data = blocks.reshape(-1, BLOCK_BYTES)
    factors = e4m3_table()[data[:, :4] & 0x7F]
    codes = data[:, 4:].reshape(-1, 4, 8)
    values: NDArray[Any] = E2M1[np.concatenate([codes & 15, codes >> 4], axis=2)] * factors[:, :, None]
    return values.reshape(-1)
