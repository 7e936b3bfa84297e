"""What a conversion does to each tensor, as data: the plan makes jobs, the writer streams them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dspark_convert.ggufio.types import GGMLType, tensor_nbytes
from dspark_convert.source.safetensors_header import TensorRef

#: copy         cast element by element to the job's type
#: pad_columns  cast, and append zero columns to every row up to ne0
#: zeros        no source: all zero
Transform = Literal["copy", "pad_columns", "zeros"]

#: plain  numbers as they stand (BF16, F16, F32, F64)
#: fp8    F8_E4M3 codes [rows, columns]; one F8_E8M0 scale for each tile of them, the scales'
#:        shape [ceil(rows / tile rows), ceil(columns / tile columns)]
#: fp4    bytes (I8 or U8) [rows, columns / 2] of two E2M1 codes each, the low nibble first; one
#:        F8_E8M0 scale for 32 columns, the scales' shape [rows, columns / 32]
#: ggml   of a GGUF: blocks, or integers, of the ggml type that their dtype names
Encoding = Literal["plain", "fp8", "fp4", "ggml"]


@dataclass(frozen=True)
class Source:
    """Numbers of a checkpoint or a GGUF. ``tile`` (rows, columns) is how many codes an fp8 scale covers."""

    values: TensorRef
    encoding: Encoding = "plain"
    scales: TensorRef | None = None
    tile: tuple[int, int] = (1, 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the numbers, row-major."""
        shape = self.values.shape
        return (*shape[:-1], 2 * shape[-1]) if self.encoding == "fp4" else shape


@dataclass(frozen=True)
class TensorJob:
    """One tensor of the output: ``shape`` in ggml order (ne0, the row length, first).

    ``sources`` are stacked along the outermost axis (the experts of a layer), each of the same
    shape; a single one fills the tensor by itself; "zeros" has none.
    """

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    sources: tuple[Source, ...] = ()
    transform: Transform = "copy"

    @property
    def nbytes(self) -> int:
        return tensor_nbytes(self.type, self.shape)

    @property
    def refs(self) -> Iterator[TensorRef]:
        """Every tensor of the checkpoint that is read for this one."""
        for source in self.sources:
            yield source.values
            if source.scales is not None:
                yield source.scales

    @property
    def source(self) -> TensorRef | None:
        """The first tensor that is read, which names the job in messages; None for zeros."""
        return self.sources[0].values if self.sources else None
