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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors import q8_0
from dspark_convert.tensors.casts import f32_to_bf16

Bytes = NDArray[np.uint8]

#: with these scales every code is exact in BF16, whose numbers reach from 2**-133 to below 2**128
EXACT_SCALES = range(3, 247)


def to_f32(
    codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Float32 [rows, columns]."""
    values = np.empty(codes.shape, np.float32) if out is None else out
    with np.errstate(over="ignore", invalid="ignore"):
        for rows, factors in _tile_rows(codes, scales, tile, first_row):
            np.take(e4m3_table(), codes[rows], mode="clip", out=values[rows])
            values[rows] *= e8m0_table()[factors]
    return values


def to_bf16(
    codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0, out: NDArray[np.uint16] | None = None
) -> NDArray[np.uint16]:
    """BF16 bits, uint16 [rows, columns], to nearest even: see ``inexact_in_bf16``."""
    bits = f32_to_bf16(to_f32(codes, scales, tile, first_row))
    if out is None:
        return bits
    out[...] = bits
    return out


def to_f16(
    codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0, out: NDArray[np.float16] | None = None
) -> NDArray[np.float16]:
    """Float16 [rows, columns], to nearest even; 65520 and more become infinite."""
    values = np.empty(codes.shape, np.float16) if out is None else out
    with np.errstate(over="ignore"):
        values[...] = to_f32(codes, scales, tile, first_row)
    return values


def to_q8_0(codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0, out: Bytes | None = None) -> Bytes:
    """Flat Q8_0 bytes, those of the float32 values; the number of columns is a multiple of 32."""
    blocks = q8_0.quantize(to_f32(codes, scales, tile, first_row).reshape(-1))
    if out is None:
        return blocks
    out[...] = blocks
    return out


def inexact_in_bf16(codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int = 0) -> int:
    """How many values are not exactly a BF16 number: too small (below 2**-133) or too large.

    A NaN counts as exact: it stays one. Reads no codes where the scales alone settle it.
    """
    count = 0
    for rows, factors in _tile_rows(codes, scales, tile, first_row):
        low, high = EXACT_SCALES.start, EXACT_SCALES.stop - 1
        if factors.min() < low or np.any((factors > high) & (factors < 255)):
            pairs = factors.astype(np.uint16) << 8 | codes[rows]
            count += int(np.count_nonzero(_inexact_table()[pairs]))
    return count


def _tile_rows(codes: Bytes, scales: Bytes, tile: tuple[int, int], first_row: int) -> Iterator[tuple[slice, Bytes]]:
    """The runs of rows that share their scales, with the scale of every column."""
    rows, columns = codes.shape
    start = 0
    while start < rows:
        tile_row, inside = divmod(first_row + start, tile[0])
        stop = min(rows, start + tile[0] - inside)
        yield slice(start, stop), np.repeat(scales[tile_row], tile[1])[:columns]
        start = stop


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
    values = np.ldexp(np.float32(1), np.arange(256) - 127)
    values[255] = np.nan
    return values.astype(np.float32)


@cache
def _inexact_table() -> NDArray[np.bool_]:
    """For scale << 8 | code: whether BF16 has no such number."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact: NDArray[Any] = np.multiply.outer(e8m0_table().astype(float), e4m3_table().astype(float)).reshape(-1)
        stored = (f32_to_bf16(exact.astype(np.float32)).astype(np.uint32) << 16).view(np.float32)
    inexact: NDArray[np.bool_] = ~((stored == exact) | np.isnan(exact))
    return inexact
