"""What a tensor is once a GGUF type holds it, worked out without the converter: torch's casts, gguf's codecs.

Of the types with 6 bits and less there is no second opinion: gguf-py does not quantise to k-quants, and
with an importance matrix others have no single right result either. There the file's own values are
taken, which ``values`` compares with the checkpoint's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType

if TYPE_CHECKING:
    import torch

#: types that torch casts to
CASTS = {GGMLType.F32: "float32", GGMLType.F16: "float16", GGMLType.BF16: "bfloat16"}


def dequantise(file: GGUFFile, tensor: GGUFTensor) -> torch.Tensor:
    """The values of a tensor in a GGUF, float32, in PyTorch's order of dimensions.

    Raises InputError if its data is not in the file, NotImplementedError for a type that gguf-py does not know.
    """
    import gguf
    import torch

    data = np.frombuffer(file.data(tensor), np.uint8).reshape(*reversed(tensor.shape[1:]), -1)
    if file.byte_order == "big":
        raise NotImplementedError("big-endian values are not read")
    kind = gguf.GGMLQuantizationType(int(tensor.type))
    if tensor.type == GGMLType.BF16:  # gguf's way over uint32 takes three times the memory
        values = torch.frombuffer(bytearray(file.data(tensor)), dtype=torch.bfloat16).float()
    else:
        values = torch.from_numpy(np.array(gguf.quants.dequantize(data, kind), np.float32))
    return values.reshape(tuple(reversed(tensor.shape)))


def hold(values: torch.Tensor, kind: GGMLType | int) -> torch.Tensor | None:
    """``values`` [rows, columns] as a file of type ``kind`` gives them back, float32; None if that is unknown."""
    import gguf
    import torch

    if kind in CASTS:
        cast: Any = getattr(torch, CASTS[GGMLType(kind)])
        return values.to(cast).float()
    if kind != GGMLType.Q8_0:
        return None
    number = gguf.GGMLQuantizationType.Q8_0
    packed = gguf.quants.quantize(values.float().numpy(), number)
    return torch.from_numpy(np.array(gguf.quants.dequantize(packed, number), np.float32))
