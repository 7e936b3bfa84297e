"""What a conversion does to each tensor, as data: the plan makes jobs, the writer streams them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dspark_convert.ggufio.types import GGMLType, tensor_nbytes
from dspark_convert.source.safetensors_header import TensorRef

#: copy          cast element by element to the job's type
#: pad_columns   cast, and append zero columns to every row up to ne0
#: unpair        the outermost axis is heads of ``head_dim`` rows whose rotary pairs are neighbours (2i, 2i + 1):
#:               each head's even rows come first, then its odd ones, which makes NeoX pairs (i, i + head_dim/2)
#: absolute_ids  integers that are offsets: entry i becomes i + offset, the target's token id; always I64
#: patch_row     copy, with row ``row`` taken from ``patch``, a vector of the row's length
#: zeros         no source: all zero
#: literal       no source: ``literal`` holds the tensor's bytes
Transform = Literal["copy", "pad_columns", "unpair", "absolute_ids", "patch_row", "zeros", "literal"]

#: plain  numbers as they stand (BF16, F16, F32, F64)
#: fp8    F8_E4M3 codes [rows, columns]; one F8_E8M0 scale for each tile of them, the scales'
#:        shape [ceil(rows / tile rows), ceil(columns / tile columns)]
#: fp4    bytes (I8 or U8) [rows, columns / 2] of two E2M1 codes each, the low nibble first; one
#:        F8_E8M0 scale for 32 columns, the scales' shape [rows, columns / 32]
#: nvfp4  bytes (U8) [rows, columns / 2] of two E2M1 codes each, the low nibble first; one F8_E4M3 scale for
#:        16 columns, the scales' shape [rows, columns / 16]; ``tensor_scale`` (F32, one number) multiplies all.
#:        Written as NVFP4 the codes and their scales stay as they are, and the number is a tensor of its own
#: ggml   of a GGUF: blocks, or integers, of the ggml type that their dtype names. NVFP4 that becomes another type
#:        has its ``tensor_scale`` too
Encoding = Literal["plain", "fp8", "fp4", "nvfp4", "ggml"]


@dataclass(frozen=True)
class Source:
    """Numbers of a checkpoint or a GGUF. ``tile`` (rows, columns) is how many codes an fp8 scale covers."""

    values: TensorRef
    encoding: Encoding = "plain"
    scales: TensorRef | None = None
    tile: tuple[int, int] = (1, 1)
    tensor_scale: TensorRef | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the numbers, row-major; a single number is a vector of one."""
        shape = self.values.shape or (1,)
        return (*shape[:-1], 2 * shape[-1]) if self.encoding in ("fp4", "nvfp4") else shape


@dataclass(frozen=True)
class TensorJob:
    """One tensor of the output: ``shape`` in ggml order (ne0, the row length, first).

    ``sources`` are stacked along the outermost axis (the experts of a layer), each of the same
    shape; a single one fills the tensor by itself; "zeros" and "literal" have none. ``head_dim``,
    ``row`` and ``patch``, ``literal``: what the transforms of these words need.
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    sources: tuple[Source, ...] = ()
    transform: Transform = "copy"
    head_dim: int = 0
    row: int = 0
    patch: TensorRef | None = None
    literal: bytes = b""

    @property
    def nbytes(self) -> int:
        return tensor_nbytes(self.type, self.shape)

    @property
    def inputs(self) -> tuple[Source, ...]:
        """The sources, and behind them the patch if there is one."""
        return self.sources if self.patch is None else (*self.sources, Source(self.patch))

    @property
    def refs(self) -> Iterator[TensorRef]:
        """Every tensor of the checkpoint that is read for this one."""
        for source in self.inputs:
            yield source.values
            for scale in (source.scales, source.tensor_scale):
                if scale is not None:
                    yield scale

    @property
    def source(self) -> TensorRef | None:
        """The first tensor that is read, which names the job in messages; None without one."""
        return self.sources[0].values if self.sources else None
