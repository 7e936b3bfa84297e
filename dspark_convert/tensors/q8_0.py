"""Q8_0: blocks of 32 values, each an f16 scale d and 32 int8 q with value = d * q (34 bytes).

As in ggml: d = max|x| / 127 in float32, q = x * (1 / d) rounded half away from zero, and d itself
is stored rounded to f16. Same bytes as gguf-py and as ggml's own quantiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors.scratch import scratch

QK = 32
BLOCK = np.dtype([("d", "<f2"), ("q", f"V{QK}")])

#: values at a time: the buffers still fit a core's cache, and numpy's calls cost little beside the work
STEP = 1 << 17

Bytes = NDArray[np.uint8]


def quantize(values: NDArray[np.float32], out: Bytes | None = None) -> Bytes:
    """Q8_0 bytes of flat ``values``, whose number is a multiple of 32.

    A block with a NaN or an infinity gets a scale that is one too; a block whose maximum is
    above 127 * 65504 gets an infinite scale; a block whose 1 / d overflows float32 (maximum below
    about 3.7e-37, f16 scale 0) gets zeros, where C leaves the result of the cast undefined.
    """
    blocks = np.empty(values.size // QK, BLOCK) if out is None else out.view(BLOCK)
    for start in range(0, values.size, STEP):
        part = values[start : start + STEP]
        # The buffers are used for one thing after the other, to keep them few.
        a, b, c = (scratch(f"q8_0.{name}", part.size, np.uint32) for name in "abc")
        maxima = block_maxima(part.view(np.uint32), a, b).view(np.float32)
        _quantize(part, maxima, blocks[start // QK : (start + STEP) // QK], a.view(np.float32), b, c)
    return blocks.view(np.uint8)


def quantize_bf16(bits: NDArray[np.uint16], out: Bytes | None = None) -> Bytes:
    """The same of BF16 bit patterns, whose maxima are found in half the time."""
    blocks = np.empty(bits.size // QK, BLOCK) if out is None else out.view(BLOCK)
    for start in range(0, bits.size, STEP):
        part = bits[start : start + STEP]
        a, b, c = (scratch(f"q8_0.{name}", part.size, np.uint32) for name in "abc")
        maxima = np.left_shift(block_maxima(part, b, c), 16, dtype=np.uint32).view(np.float32)
        np.left_shift(part, 16, out=a, dtype=np.uint32)
        wide = a.view(np.float32)
        _quantize(wide, maxima, blocks[start // QK : (start + STEP) // QK], wide, b, c)
    return blocks.view(np.uint8)


def scales(data: Bytes) -> NDArray[np.float16]:
    """The f16 scales [n_blocks] of Q8_0 bytes."""
    d: NDArray[Any] = data.view(BLOCK)["d"]
    return d


def _quantize(
    values: NDArray[np.float32],
    maxima: NDArray[np.float32],
    blocks: NDArray[Any],
    product: NDArray[np.float32],
    b: NDArray[np.uint32],
    c: NDArray[np.uint32],
) -> None:
    """Fill ``blocks``; ``maxima`` are the values' max|x|; ``product`` (it may be ``values``), b and c are buffers."""
    scale = maxima / np.float32(127)
    halves, rounded = b.view(np.int16)[: values.size], c.view(np.int16)[: values.size]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.float32(1) / scale
        inverse[~np.isfinite(inverse)] = 0
        twice = inverse + inverse
        fits = bool(np.isfinite(twice).all())
        np.multiply(values.reshape(-1, QK), (twice if fits else inverse)[:, None], out=product.reshape(-1, QK))
        if not fits:
            product += product
        np.copyto(halves, product, casting="unsafe")
        blocks["d"] = scale
    # Half away from zero in integers: with t = trunc(2y), round(y) is (t + 1) >> 1 for y >= 0 and
    # t >> 1 for y < 0. Adding 0.5 in float32 would round 0.49999997 up.
    np.right_shift(halves, 15, out=rounded)
    rounded += halves
    rounded += 1
    rounded >>= 1
    q = b.view(np.int8)[: values.size]
    np.copyto(q, rounded, casting="unsafe")
    blocks["q"] = q.view(f"V{QK}")


def block_maxima(bits: NDArray[Any], a: NDArray[np.uint32], b: NDArray[np.uint32]) -> NDArray[Any]:
    """max|x| of every 32 values, as bits like ``bits`` (uint32 or uint16); NaN where a block has one.

    Magnitudes compare as integers in the order of their values, NaN above infinity. They move as
    8-byte words into columns, along which numpy's maximum runs over long contiguous rows: four
    times as fast as a maximum over rows of 32. a and b are buffers.
    """
    n_blocks = bits.size // QK
    magnitudes = a.view(bits.dtype)[: bits.size]
    np.bitwise_and(bits, np.iinfo(bits.dtype).max >> 1, out=magnitudes)
    words = magnitudes.view(np.uint64).reshape(n_blocks, -1)
    columns = b.view(np.uint64)[: words.size].reshape(-1, n_blocks)
    np.copyto(columns, words.T)
    maxima: NDArray[Any] = columns.view(bits.dtype).max(axis=0)
    while maxima.size > n_blocks:
        maxima = np.maximum(maxima[0::2], maxima[1::2])
    return maxima
