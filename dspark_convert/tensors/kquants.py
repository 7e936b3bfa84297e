"""The smaller ggml types back to float32: their blocks as ggml lays them out.

Each function takes blocks as uint8 [n_blocks, bytes] and gives flat float32. Nibbles hold the first half of
a run in their low and the second half in their high bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

#: the 16 values of IQ4_NL and IQ4_XS
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def q4_0(blocks: Bytes) -> Floats:
    """32 values d * (q - 8): d, 16 bytes of nibbles."""
    return _flat(_f16(blocks[:, :2]) * (_nibbles(blocks[:, 2:], 16) - np.float32(8)))


def q4_1(blocks: Bytes) -> Floats:
    """32 values d * q + m: d, m, 16 bytes of nibbles."""
    return _flat(_f16(blocks[:, :2]) * _nibbles(blocks[:, 4:], 16) + _f16(blocks[:, 2:4]))


def q5_0(blocks: Bytes) -> Floats:
    """32 values d * (q - 16): d, 32 upper bits, 16 bytes of nibbles."""
    q = _nibbles(blocks[:, 6:], 16) + 16 * _bits(blocks[:, 2:6])
    return _flat(_f16(blocks[:, :2]) * (q - np.float32(16)))


def q5_1(blocks: Bytes) -> Floats:
    """32 values d * q + m: d, m, 32 upper bits, 16 bytes of nibbles."""
    q = _nibbles(blocks[:, 8:], 16) + 16 * _bits(blocks[:, 4:8])
    return _flat(_f16(blocks[:, :2]) * q + _f16(blocks[:, 2:4]))


def q8_0(blocks: Bytes) -> Floats:
    """32 values d * q: d, then q as int8."""
    return _flat(_f16(blocks[:, :2]) * blocks[:, 2:].view(np.int8))


def q2_k(blocks: Bytes) -> Floats:
    """256 values d * s * q - m * t: for every 16 a byte of s (low) and t, 64 bytes of bit pairs, d, m."""
    scales = blocks[:, :16]
    q = _pairs(blocks[:, 16:80]).reshape(-1, 16, 16)
    steps = _f16(blocks[:, 80:82]) * (scales & 15)
    minima = _f16(blocks[:, 82:84]) * (scales >> 4)
    return _flat(steps[:, :, None] * q - minima[:, :, None])


def q3_k(blocks: Bytes) -> Floats:
    """256 values d * (s - 32) * (q - 4), s for every 16: 32 bytes of upper bits, 64 of bit pairs, 12 of s, d."""
    upper = _bits_across(blocks[:, :32], 8)
    q = _pairs(blocks[:, 32:96]) + 4 * upper - np.float32(4)
    packed = blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = (packed[:, None, 8:] >> _shifts(0, 2, 4, 6) & 3).reshape(-1, 16)
    scales = (low | high << 4).astype(np.float32) - np.float32(32)
    return _flat((_f16(blocks[:, 108:]) * scales)[:, :, None] * q.reshape(-1, 16, 16))


def q4_k(blocks: Bytes) -> Floats:
    """256 values d * s * q - m * t, s and t for every 32: d, m, 12 bytes of s and t, 128 of nibbles."""
    return _k45(blocks, _nibbles(blocks[:, 16:], 32))


def q5_k(blocks: Bytes) -> Floats:
    """As q4_k, with 32 bytes of upper bits before the nibbles."""
    return _k45(blocks, _nibbles(blocks[:, 48:], 32) + 16 * _bits_across(blocks[:, 16:48], 8))


def q6_k(blocks: Bytes) -> Floats:
    """256 values d * s * (q - 32) with a scale s for every 16: 128 bytes of low nibbles, 64 of
    upper bit pairs, 16 of s, then d as f16. Each half of 128 values has 64 bytes of nibbles (low
    ones first) and 32 of bit pairs (lowest first)."""
    low = _nibbles(blocks[:, :128], 64)
    q = low + 16 * _pairs(blocks[:, 128:192]) - np.float32(32)
    scales = _f16(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8)
    return _flat(scales[:, :, None] * q.reshape(-1, 16, 16))


def iq4_nl(blocks: Bytes) -> Floats:
    """32 values d * IQ4[q]: d, 16 bytes of nibbles."""
    return _flat(_f16(blocks[:, :2]) * IQ4[_nibbles(blocks[:, 2:], 16).astype(np.intp)])


def iq4_xs(blocks: Bytes) -> Floats:
    """256 values d * (s - 32) * IQ4[q], s for every 32: d, 2 bytes of upper bit pairs of s, 4 of nibbles of s,
    128 of nibbles."""
    low = (blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(-1, 8)
    high = (blocks[:, 2:4, None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(-1, 8)
    scales = _f16(blocks[:, :2]) * ((low | high << 4).astype(np.float32) - np.float32(32))
    values = IQ4[_nibbles(blocks[:, 8:], 16).astype(np.intp)]
    return _flat(scales[:, :, None] * values.reshape(-1, 8, 32))


DEQUANTISERS: dict[str, tuple[int, Callable[[Bytes], Floats]]] = {
    "Q4_0": (18, q4_0),
    "Q4_1": (20, q4_1),
    "Q5_0": (22, q5_0),
    "Q5_1": (24, q5_1),
    "Q8_0": (34, q8_0),
    "Q2_K": (84, q2_k),
    "Q3_K": (110, q3_k),
    "Q4_K": (144, q4_k),
    "Q5_K": (176, q5_k),
    "Q6_K": (210, q6_k),
    "IQ4_NL": (18, iq4_nl),
    "IQ4_XS": (136, iq4_xs),
}


def _k45(blocks: Bytes, q: Floats) -> Floats:
    """The 8 scales and 8 minima of 6 bits: of the first four the bytes' lower 6 bits, of the others
    nibbles, whose upper 2 bits are those left over."""
    s, t, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([s & 63, rest & 15 | s >> 6 << 4], axis=1)
    minima = np.concatenate([t & 63, rest >> 4 | t >> 6 << 4], axis=1)
    steps = (_f16(blocks[:, :2]) * scales)[:, :, None]
    return _flat(steps * q.reshape(-1, 8, 32) - (_f16(blocks[:, 2:4]) * minima)[:, :, None])


def _nibbles(data: Bytes, run: int) -> Floats:
    """Of every ``run`` bytes the low nibbles, then the high ones: float32 [n_blocks, 2 * bytes]."""
    runs = data.reshape(len(data), -1, 1, run)
    return (runs >> _shifts(0, 4) & 15).reshape(len(data), -1).astype(np.float32)


def _pairs(data: Bytes) -> Floats:
    """Of every 32 bytes the bit pairs, the lowest of all first: float32 [n_blocks, 4 * bytes]."""
    runs = data.reshape(len(data), -1, 1, 32)
    return (runs >> _shifts(0, 2, 4, 6) & 3).reshape(len(data), -1).astype(np.float32)


def _bits(data: Bytes) -> Floats:
    """The bits of each byte in turn, the lowest first."""
    return np.unpackbits(data, axis=1, bitorder="little").astype(np.float32)


def _bits_across(data: Bytes, count: int) -> Floats:
    """The lowest bits of all bytes, then the next: float32 [n_blocks, count * bytes]."""
    return (data[:, None] >> _shifts(*range(count)) & 1).reshape(len(data), -1).astype(np.float32)


def _shifts(*bits: int) -> Bytes:
    return np.array(bits, np.uint8)[:, None]


def _f16(data: Bytes) -> NDArray[Any]:
    """Two bytes a row as float32 [rows, 1]."""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def _flat(values: NDArray[Any]) -> Floats:
    return values.reshape(-1)
