"""Q8_0: blocks of 32 values, each an f16 scale d and 32 int8 q with value = d * q (34 bytes).

As in ggml: d = max|x| / 127 in float32, q = x * (1 / d) rounded half away from zero, and d itself
is stored rounded to f16. Same bytes as gguf-py and as ggml's own quantiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

QK = 32
BLOCK = np.dtype([("d", "<f2"), ("q", f"V{QK}")])

_MAGNITUDE = np.uint32(0x7FFFFFFF)


def quantize(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Q8_0 bytes of flat ``values``, whose number is a multiple of 32.

    A block with a NaN or an infinity gets a scale that is one too; a block whose maximum is
    above 127 * 65504 gets an infinite scale; a block whose 1 / d overflows float32 (maximum below
    about 3.7e-37, f16 scale 0) gets zeros, where C leaves the result of the cast undefined.
    """
    n_blocks = values.size // QK
    scale = _block_maxima(values) / np.float32(127)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.float32(1) / scale
        inverse[~np.isfinite(inverse)] = 0
        quotients = values.reshape(n_blocks, QK) * inverse[:, None]
        quotients *= np.float32(2)
        halves = quotients.astype(np.int16)
    # Half away from zero in integers: with t = trunc(2y), round(y) is (t + 1) >> 1 for y >= 0 and
    # t >> 1 for y < 0. Adding 0.5 in float32 would round 0.49999997 up.
    rounded = halves >> 15
    rounded += halves
    rounded += 1
    rounded >>= 1

    out = np.empty(n_blocks, BLOCK)
    with np.errstate(over="ignore", invalid="ignore"):
        out["d"] = scale
    out["q"] = rounded.astype(np.int8).view(f"V{QK}").reshape(n_blocks)
    return out.view(np.uint8)


def scales(data: NDArray[np.uint8]) -> NDArray[np.float16]:
    """The f16 scales [n_blocks] of Q8_0 bytes."""
    d: NDArray[Any] = data.view(BLOCK)["d"]
    return d


def _block_maxima(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """max|x| of every 32 values, float32 [n_blocks]; NaN where a block has one.

    Magnitudes compare as integers in the order of their values, NaN above infinity. Pairs of them
    move as 8-byte words into 16 columns, along which numpy's maximum runs over long contiguous
    rows: four times as fast as a maximum over rows of 32.
    """
    n_blocks = values.size // QK
    magnitudes = values.view(np.uint32) & _MAGNITUDE
    columns = np.ascontiguousarray(magnitudes.view(np.uint64).reshape(n_blocks, QK // 2).T)
    pairs = columns.view(np.uint32).max(axis=0, initial=0)
    maxima: NDArray[np.uint32] = np.maximum(pairs[0::2], pairs[1::2])
    return maxima.view(np.float32)
