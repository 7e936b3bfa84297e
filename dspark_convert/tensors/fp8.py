"""FP8 matrices: E4M3 codes with one E8M0 scale for each tile, to the types of a GGUF.

A code has a sign, 4 bits of exponent (bias 7) and 3 of mantissa; 0x7F and 0xFF are NaN, there is no
infinity (OCP 8-bit floating point, E4M3). A scale byte s means 2**(s - 127); 255 is NaN (OCP
microscaling formats, E8M0). The product is exact in float32 unless it is 2**128 or more, which only
scales above 246 reach: it becomes infinite. Everything below takes whole rows of the codes,
uint8 [rows, columns] from row ``first_row`` of the matrix on, and the scales of the whole matrix,
uint8 [tile rows, tile columns]; a tile of ``tile`` (rows, columns) may reach over the edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors import q8_0
from dspark_convert.tensors.casts import bf16_to_f32, f32_to_bf16

Bytes = NDArray[np.uint8]
Number = TypeVar("Number", np.float32, np.float16, np.uint16)

NAN_SCALE = 255

#: with these scales every code is exact in BF16, whose numbers reach from 2**-133 to below 2**128
EXACT_SCALES = range(3, 247)
#: with these neither d = max / 127 nor 1 / d is subnormal in float32, so that a scale is a shift of exponents
Q8_0_SCALES = range(17, 247)
#: codes looked up at a time
STEP = 1 << 16


def to_f32(
    codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Float32 [rows, columns]."""
    return _looked_up(_f32_table(), codes, scales, tile, first_row, out)


def to_bf16(
    codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0, out: NDArray[np.uint16] | None = None
) -> NDArray[np.uint16]:
    """BF16 bits, uint16 [rows, columns], to nearest even: see ``inexact_in_bf16``."""
    return _looked_up(_bf16_table(), codes, scales, tile, first_row, out)


def to_f16(
    codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0, out: NDArray[np.float16] | None = None
) -> NDArray[np.float16]:
    """Float16 [rows, columns], to nearest even; 65520 and more become infinite."""
    return _looked_up(_f16_table(), codes, scales, tile, first_row, out)


def to_q8_0(codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0, out: Bytes | None = None) -> Bytes:
    """Flat Q8_0 bytes, those of the float32 values; the number of columns is a multiple of 32."""
    rows, columns = codes.shape
    blocks = np.empty(codes.size // q8_0.QK, q8_0.BLOCK) if out is None else out.view(q8_0.BLOCK)
    table = blocks.reshape(rows, columns // q8_0.QK)
    for some, factors in _tile_rows(codes, scales, tile, first_row):
        part = codes[some]
        if tile[1] % q8_0.QK or factors.min() < Q8_0_SCALES.start or factors.max() >= Q8_0_SCALES.stop:
            wide = to_f32(part, scales, tile, first_row + some.start)
            table[some] = q8_0.quantize(wide.reshape(-1)).view(q8_0.BLOCK).reshape(table[some].shape)
            continue
        # A power of two that a whole block shares changes d alone, and q depends on two codes only.
        maxima = _block_maxima(part)
        upper = factors[:: q8_0.QK].astype(np.uint16) << 8
        table["d"][some] = _d_table()[upper | maxima.reshape(-1, columns // q8_0.QK)]
        pairs = part.reshape(-1, q8_0.QK) | (maxima.astype(np.uint16) << 8)[:, None]
        q = np.take(_q_table(), pairs, mode="wrap")
        table["q"][some] = q.view(f"V{q8_0.QK}").reshape(table[some].shape)
    return blocks.view(np.uint8)


def inexact_in_bf16(codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0) -> int:
    """How many values are not exactly a BF16 number: too small (below 2**-133) or too large.

    A NaN counts as exact: it stays one. Reads no codes where the scales alone settle it.
    """
    count = 0
    for rows, factors in _tile_rows(codes, scales, tile, first_row):
        if factors.min() < EXACT_SCALES.start or factors.max() >= EXACT_SCALES.stop:
            count += int(np.count_nonzero(_inexact_table()[factors.astype(np.uint16) << 8 | codes[rows]]))
    return count


def _looked_up(
    table: NDArray[Number],
    codes: Bytes,
    scales: Bytes,
    tile: tuple[int, int],
    first_row: int,
    out: NDArray[Number] | None,
) -> NDArray[Number]:
    """``table`` at scale << 8 | code, for every code: faster than a product, and nothing overflows aloud."""
    values = np.empty(codes.shape, table.dtype) if out is None else out
    for rows, factors in _tile_rows(codes, scales, tile, first_row):
        np.take(table, factors.astype(np.uint16) << 8 | codes[rows], mode="wrap", out=values[rows])
    return values


def _tile_rows(codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int) -> Iterator[tuple[slice, Bytes]]:
    """Runs of rows that share their scales, with the scale of every column.

    Few rows at a time: numpy widens indices to 8 bytes, which should stay in a core's cache.
    """
    rows, columns = codes.shape
    most = max(1, STEP // max(columns, 1))
    start = 0
    while start < rows:
        tile_row, inside = divmod(first_row + start, tile[0])
        stop = min(rows, start + tile[0] - inside, start + most)
        yield slice(start, stop), np.repeat(scales[tile_row], tile[1])[:columns]
        start = stop


def _block_maxima(codes: Bytes) -> Bytes:
    """The largest code without its sign of every 32: magnitudes are in the order of their codes."""
    words = np.ascontiguousarray((codes & 0x7F).reshape(-1, q8_0.QK).view(np.uint64).T)
    maxima: Bytes = words.view(np.uint8).max(axis=0)
    while maxima.size > codes.size // q8_0.QK:
        maxima = np.maximum(maxima[::2], maxima[1::2])
    return maxima


@cache
def e4m3_table() -> NDArray[np.float32]:
    """The value of each of the 256 E4M3 codes."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    magnitude[code & 0x7F == 0x7F] = np.nan
    return np.copysign(magnitude, np.where(code < 128, 1, -1)).astype(np.float32)


@cache
def e8m0_table() -> NDArray[np.float32]:
    """The value of each of the 256 E8M0 codes; 2**-127 is subnormal in float32."""
    values = np.ldexp(1.0, np.arange(256) - 127)
    values[NAN_SCALE] = np.nan
    return values.astype(np.float32)


@cache
def _exact() -> NDArray[np.float64]:
    """For scale << 8 | code: the value."""
    values: NDArray[np.float64] = np.multiply.outer(e8m0_table(), e4m3_table(), dtype=np.float64).reshape(-1)
    return values


@cache
def _f32_table() -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return _exact().astype(np.float32)


@cache
def _f16_table() -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        return _exact().astype(np.float16)


@cache
def _bf16_table() -> NDArray[np.uint16]:
    return f32_to_bf16(_f32_table())


@cache
def _d_table() -> NDArray[np.float16]:
    """For scale << 8 | largest code of a block: the scale of the Q8_0 block."""
    with np.errstate(over="ignore"):
        return (_f32_table() / np.float32(127)).astype("<f2")


@cache
def _q_table() -> NDArray[np.int8]:
    """For largest code << 8 | code: the q of the code."""
    values = np.empty((128, 16, q8_0.QK), np.float32)  # in each block 16 codes and the largest one
    values[:, :, :16] = e4m3_table().reshape(16, 16)
    values[:, :, 16:] = e4m3_table()[:128, None, None]
    values[~(np.abs(values) <= values[:, :, -1:])] = 0  # never looked up, or NaN
    blocks = q8_0.quantize(values.reshape(-1)).reshape(-1, q8_0.BLOCK.itemsize)
    q: NDArray[np.int8] = blocks[:, 2:18].reshape(-1).view(np.int8)
    return q


@cache
def _inexact_table() -> NDArray[np.bool_]:
    """For scale << 8 | code: whether BF16 has no such number."""
    inexact: NDArray[np.bool_] = ~((bf16_to_f32(_bf16_table()) == _exact()) | np.isnan(_exact()))
    return inexact
