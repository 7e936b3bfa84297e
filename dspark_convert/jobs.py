"""What a conversion does to each tensor, as data: the plan makes jobs, the writer streams them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dspark_convert.ggufio.types import GGMLType, tensor_nbytes


@dataclass(frozen=True)
class TensorRef:
    """A tensor inside a safetensors file.

    ``dtype`` is safetensors' own name ("BF16", "F32", …); ``shape`` is row-major, slowest axis
    first, as in PyTorch; ``offset`` is the absolute byte position in the file.
    """

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


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
