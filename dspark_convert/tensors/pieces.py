"""Numbers of a checkpoint or a GGUF in each of the encodings, as a piece of a tensor that is in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors import fp8, mxfp4, nvfp4
from dspark_convert.tensors.casts import TARGET_TYPES, Numbers, cast, to_f32
from dspark_convert.tensors.dequantise import dequantise

Bytes = NDArray[np.uint8]


class Piece(Protocol):
    """Whole rows, or for plain numbers any number of whole blocks."""

    @property
    def stored(self) -> NDArray[Any]:
        """As they stand in the file."""

    def direct(self, ggml_type: GGMLType) -> Bytes | None:
        """Their bytes (flat) as ``ggml_type`` where there is a shorter way than by ``wide``."""

    def wide(self) -> NDArray[np.float32]:
        """Flat float32."""

    def exact(self) -> NDArray[Any]:
        """Flat, float32 or float64: to find those that are not finite."""


@dataclass(frozen=True, slots=True)
class Plain:
    """``stored`` of the safetensors dtype ``dtype``."""

    stored: Numbers
    dtype: str

    def direct(self, ggml_type: GGMLType) -> Bytes | None:
        return cast(self.stored, self.dtype, ggml_type) if ggml_type in TARGET_TYPES else None

    def wide(self) -> NDArray[np.float32]:
        return to_f32(self.stored, self.dtype)

    def exact(self) -> NDArray[Any]:
        return self.stored if self.dtype == "F64" else self.wide()


@dataclass(frozen=True, slots=True)
class Integers:
    """``stored`` whole numbers. ``first`` is the index of the first one if they are offsets from their own index."""

    stored: Numbers
    first: int | None

    def direct(self, ggml_type: GGMLType) -> Bytes | None:
        if ggml_type is not GGMLType.I64:
            return None
        ids: NDArray[np.int64] = self.stored.astype("<i8")
        if self.first is not None:
            ids += np.arange(self.first, self.first + ids.size)
        return ids.view(np.uint8)

    def wide(self) -> NDArray[np.float32]:
        return self.stored.astype(np.float32)

    def exact(self) -> NDArray[Any]:
        return self.wide()


@dataclass(frozen=True, slots=True)
class FP8:
    """Codes ``stored`` [rows, columns], of which the first is row ``first_row`` below the ``scales``'
    first; each of those [tile rows, tile columns] is for ``tile`` (rows, columns) of them."""

    stored: Bytes
    scales: Bytes
    tile: tuple[int, int]
    first_row: int

    def direct(self, ggml_type: GGMLType) -> Bytes | None:
        shorter = _FROM_FP8.get(ggml_type)
        if shorter is None:
            return None
        out: Bytes = shorter(self.stored, self.scales, self.tile, self.first_row).reshape(-1).view(np.uint8)
        return out

    def wide(self) -> NDArray[np.float32]:
        return fp8.to_f32(self.stored, self.scales, self.tile, self.first_row).reshape(-1)

    def exact(self) -> NDArray[Any]:
        return self.wide()


_FROM_FP8: dict[GGMLType, Any] = {
    GGMLType.F32: fp8.to_f32,
    GGMLType.F16: fp8.to_f16,
    GGMLType.BF16: fp8.to_bf16,
    GGMLType.Q8_0: fp8.to_q8_0,
}


@dataclass(frozen=True, slots=True)
class FP4:
    """Pairs of codes ``stored`` [rows, columns / 2] and ``scales`` [rows, columns / 32]."""

    stored: Bytes
    scales: Bytes

    def direct(self, ggml_type: GGMLType) -> Bytes | None:
        return mxfp4.repack(self.stored, self.scales) if ggml_type is GGMLType.MXFP4 else None

    def wide(self) -> NDArray[np.float32]:
        return mxfp4.to_f32(self.stored, self.scales).reshape(-1)

    def exact(self) -> NDArray[Any]:
        return self.wide()


@dataclass(frozen=True, slots=True)
class NVFP4:
    """Pairs of codes ``stored`` [rows, columns / 2] and ``scales`` [rows, columns / 16]; ``factor`` multiplies all,
    but for a tensor of the type NVFP4, which has it beside it."""

    stored: Bytes
    scales: Bytes
    factor: float

    def direct(self, ggml_type: GGMLType) -> Bytes | None:
        return nvfp4.repack(self.stored, self.scales) if ggml_type is GGMLType.NVFP4 else None

    def wide(self) -> NDArray[np.float32]:
        return nvfp4.to_f32(self.stored, self.scales, self.factor).reshape(-1)

    def exact(self) -> NDArray[Any]:
        return nvfp4.to_f64(self.stored, self.scales, self.factor).reshape(-1)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Bytes ``stored`` (flat) of whole blocks of the ggml type ``kind``; ``factor`` as for NVFP4."""

    stored: Bytes
    kind: GGMLType
    factor: float

    def direct(self, ggml_type: GGMLType) -> Bytes | None:
        return self.stored if ggml_type is self.kind else None

    def wide(self) -> NDArray[np.float32]:
        values = dequantise(self.stored.data, self.kind.name)
        if self.factor != 1:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                values *= np.float32(self.factor)
        return values

    def exact(self) -> NDArray[Any]:
        return self.wide()


def unpaired(piece: Piece, heads: int, head_dim: int) -> Piece:
    """``piece``, which is ``heads`` times ``head_dim`` rows, with the even rows of each head before its odd ones.

    A rotary embedding that turned rows 2i and 2i + 1 of a head then has them at i and i + head_dim / 2.
    """
    move = partial(_unpaired, heads=heads, head_dim=head_dim)
    match piece:
        case Plain():
            return Plain(move(piece.stored), piece.dtype)
        case FP4() | NVFP4():
            return replace(piece, stored=move(piece.stored), scales=move(piece.scales))
        case _:  # rows that share a scale become strangers
            return Plain(move(piece.wide()), "F32")


def _unpaired(rows: NDArray[Any], heads: int, head_dim: int) -> NDArray[Any]:
    pairs = rows.reshape(heads, head_dim // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
