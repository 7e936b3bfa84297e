"""What a conversion does to each tensor, as data: the plan makes jobs, the writer streams them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dspark_convert.ggufio.types import GGMLType, tensor_nbytes
from dspark_convert.source.safetensors_header import TensorRef

#: copy         cast element by element to the job's type
#: pad_columns  cast, and append zero columns to every row up to ne0
#: zeros        no source: all zero
Transform = Literal["copy", "pad_columns", "zeros"]


@dataclass(frozen=True)
class TensorJob:
    """One tensor of the output: ``shape`` in ggml order (ne0, the row length, first)."""

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    source: TensorRef | None
    transform: Transform = "copy"

    @property
    def nbytes(self) -> int:
        return tensor_nbytes(self.type, self.shape)
