"""A draft GGUF as plain data, to be changed and written again; reader and writer are the gguf package's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from gguf import GGUFValueType
from numpy.typing import NDArray


class Value(NamedTuple):
    """A key's value; ``item`` is the type of an array's items."""

    type: GGUFValueType
    value: Any
    item: GGUFValueType | None = None


#: never below Q8_0, as ``dspark-convert`` writes them too
HEADS = (
    "markov_w1.weight",
    "markov_w2.weight",
    "conf_proj.weight",
    "token_embd.weight",
    "output.weight",
    "selector_predecessor.weight",
    "selector_successor.weight",
    "selector_hidden.weight",
)

#: numbers that share a scale in the types that files are rounded to here
BLOCK = 32

#: makes the blocks of a type of float32 values [rows, columns]: bytes [rows, bytes a row]
Pack = Callable[[NDArray[Any], gguf.GGMLQuantizationType], NDArray[Any]]


@dataclass
class Copy:
    """``kv`` in the file's order; ``tensors`` as PyTorch shapes them ([rows, columns]), float32 or int64.

    Those in ``packed`` are the bytes of blocks, [rows, bytes], in the type that stands there. Changes assign new
    arrays, never into the old ones: copies of one file share them.
    """

    kv: dict[str, Value]
    tensors: dict[str, NDArray[Any]]
    packed: dict[str, gguf.GGMLQuantizationType] = field(default_factory=dict)

    def copy(self) -> Copy:
        return Copy(dict(self.kv), dict(self.tensors), self.packed)

    def set(self, key: str, value: Any) -> None:
        """Another value of the same type."""
        self.kv[key] = self.kv[key]._replace(value=value)

    def write(
        self, path: Path, outtype: str = "F32", pack: Pack = gguf.quants.quantize, heads: str | None = None
    ) -> Path:
        """Matrices are written as ``outtype``, those of HEADS as ``heads`` if told; rounded by ``pack``."""
        writer = gguf.GGUFWriter(path, self.kv["general.architecture"].value)
        for key, entry in self.kv.items():
            if key != "general.architecture":
                writer.add_key_value(key, entry.value, entry.type, sub_type=entry.item)
        for name, tensor in self.tensors.items():
            if name in self.packed:
                writer.add_tensor(name, np.ascontiguousarray(tensor), raw_dtype=self.packed[name])
            elif outtype == "F32" or not roundable(name, tensor):
                writer.add_tensor(name, np.ascontiguousarray(tensor))
            else:
                kind = gguf.GGMLQuantizationType[heads if heads and name in HEADS else outtype]
                writer.add_tensor(name, pack(tensor, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def roundable(name: str, tensor: NDArray[Any]) -> bool:
    """Matrices are, DFlash2's tables of taps are not."""
    matrix = tensor.ndim > 1 and tensor.dtype == np.float32 and tensor.shape[-1] % BLOCK == 0
    return matrix and not name.endswith("_conv_base")


Change = Callable[[Copy], Any]


class Mutant(NamedTuple):
    """A way to be wrong: ``change`` breaks a good file, or ``target`` names a wrong target for it.

    ``base`` is the file that is broken: "omit" borrows the target's tables, "include" has its own.
    """

    name: str
    change: Change
    base: str = "omit"
    target: str = "right"


def read(path: Path) -> Copy:
    """Every key and tensor of a file; what is not F32 as the bytes of its blocks."""
    reader = gguf.GGUFReader(path)
    kv = {
        field.name: Value(field.types[0], field.contents(), field.types[1] if len(field.types) > 1 else None)
        for field in reader.fields.values()
        if not field.name.startswith("GGUF.")
    }
    packed = {t.name: t.tensor_type for t in reader.tensors if t.data.dtype == np.uint8}
    return Copy(kv, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}, packed)
