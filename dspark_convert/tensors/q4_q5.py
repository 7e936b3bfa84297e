"""Q4_0 and Q5_0: 32 values d * (q - 8) or d * (q - 16), with an f16 d.

As in ggml: d is the value of largest magnitude (the first of equal ones) over -8 or -16, in float32;
q = x * (1 / d) + 8.5 or 16.5 without its fraction, at most 15 or 31; d is stored rounded to f16.
Q4_0 is d and 16 bytes, of which byte j holds q of value j in its low nibble and of value j + 16 in
its high one (18 bytes); Q5_0 is d, the 32 upper bits, and 16 such bytes (22 bytes).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

QK = 32
Q4_0_BLOCK = np.dtype([("d", "<f2"), ("q", "V16")])
Q5_0_BLOCK = np.dtype([("d", "<f2"), ("upper", "V4"), ("q", "V16")])

Bytes = NDArray[np.uint8]


def quantize_q4_0(values: NDArray[np.float32], out: Bytes | None = None) -> Bytes:
    """Q4_0 bytes (flat) of ``values``, whose number is a multiple of 32.

    A block with a NaN or an infinity gets a d that is NaN or infinite.
    """
    blocks = np.empty(values.size // QK, Q4_0_BLOCK) if out is None else out.view(Q4_0_BLOCK)
    with np.errstate(over="ignore"):
        blocks["d"], q = _rounded(values, 8)
    blocks["q"] = _nibbles(q)
    return blocks.view(np.uint8)


def quantize_q5_0(values: NDArray[np.float32], out: Bytes | None = None) -> Bytes:
    """Q5_0 bytes (flat) of ``values``, as ``quantize_q4_0``."""
    blocks = np.empty(values.size // QK, Q5_0_BLOCK) if out is None else out.view(Q5_0_BLOCK)
    with np.errstate(over="ignore"):
        blocks["d"], q = _rounded(values, 16)
    blocks["upper"] = np.packbits(q >> 4, axis=1, bitorder="little").view("V4").reshape(-1)
    blocks["q"] = _nibbles(q & np.uint8(15))
    return blocks.view(np.uint8)


def _rounded(values: NDArray[np.float32], half: int) -> tuple[NDArray[np.float32], Bytes]:
    """d float32 [n_blocks] and q [n_blocks, 32]."""
    rows = values.reshape(-1, QK)
    places = np.abs(rows).argmax(axis=1)  # of a NaN if there is one
    d = rows[np.arange(len(rows)), places] / np.float32(-half)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.float32(1) / d
        inverse[~np.isfinite(inverse)] = 0  # a zero, a NaN, or 1 / d too large
        q = rows * inverse[:, None]
        q += np.float32(half + 0.5)
        q[~np.isfinite(d)] = 0
    return d, np.minimum(q.astype(np.uint8), np.uint8(2 * half - 1))


def _nibbles(q: Bytes) -> NDArray[np.void]:
    """The 16 bytes of every block."""
    packed: NDArray[np.void] = (q[:, :16] | q[:, 16:] << 4).view("V16").reshape(-1)
    return packed
