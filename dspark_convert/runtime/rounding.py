"""What a tensor is once a GGUF type holds it, worked out without the converter: torch's casts, gguf's codecs.

Of the types with 6 bits and less there is no second opinion: gguf-py does not quantise to k-quants, and
with an importance matrix others have no single right result either. There the file's own values are
taken, which ``values`` compares with the checkpoint's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType

if TYPE_CHECKING:
    import torch

    from dspark_convert.reference.inputs import Rounding

#: types that torch casts to
CASTS = {GGMLType.F32: "float32", GGMLType.F16: "float16", GGMLType.BF16: "bfloat16"}

#: what ggml rounds the activations to that a matrix of a type is multiplied with
INPUTS: dict[GGMLType, Rounding] = {
    GGMLType.F16: "f16",
    GGMLType.BF16: "bf16",
    **dict.fromkeys((GGMLType.Q8_0, GGMLType.Q4_0, GGMLType.Q5_0, GGMLType.IQ4_NL), "q8_0"),
    **dict.fromkeys((GGMLType.MXFP4, GGMLType.NVFP4), "q8_0"),
    **dict.fromkeys((GGMLType.Q2_K, GGMLType.Q3_K, GGMLType.Q4_K, GGMLType.Q5_K, GGMLType.Q6_K), "q8_k"),
}


def dequantise(file: GGUFFile, tensor: GGUFTensor, part: int | None = None) -> torch.Tensor:
    """The values of a tensor in a GGUF, float32, in PyTorch's order of dimensions; of one ``part`` of a stack.

    Raises InputError if its data is not in the file, NotImplementedError for a type that gguf-py does not know.
    """
    import gguf
    import torch

    data, shape = encoded(file, tensor, part)
    if file.byte_order == "big":
        raise NotImplementedError("big-endian values are not read")
    kind = gguf.GGMLQuantizationType(int(tensor.type))
    if tensor.type == GGMLType.BF16:  # gguf's way over uint32 takes three times the memory
        values = torch.frombuffer(bytearray(data), dtype=torch.bfloat16).float()
    else:
        values = torch.from_numpy(np.array(gguf.quants.dequantize(data, kind), np.float32))
    return values.reshape(shape)


def encoded(file: GGUFFile, tensor: GGUFTensor, part: int | None = None) -> tuple[NDArray[np.uint8], tuple[int, ...]]:
    """The bytes of a tensor, or of one ``part`` of a stack, [..., rows, bytes], and its shape in PyTorch's order."""
    data = np.frombuffer(file.data(tensor), np.uint8).reshape(*reversed(tensor.shape[1:]), -1)
    shape = tuple(reversed(tensor.shape))
    return (data, shape) if part is None else (data[part], shape[1:])


def same_fours(data: NDArray[np.uint8], pairs: torch.Tensor, scales: torch.Tensor) -> bool:
    """Whether MXFP4 rows hold a checkpoint's FP4 numbers bit for bit, without computing them.

    ``data`` [rows, blocks * 17]: of each block the scale, then 16 bytes of number i in the low bits and i + 16 in
    the high ones. ``pairs`` [rows, blocks * 16] int8: numbers 2i and 2i + 1. ``scales`` [rows, blocks] float8_e8m0fnu.
    """
    import torch

    rows, blocks = scales.shape
    if data.shape != (rows, 17 * blocks) or pairs.shape != (rows, 16 * blocks):
        return False
    packed = data.reshape(rows, blocks, 17)
    if not np.array_equal(packed[..., 0], scales.view(torch.uint8).numpy()):
        return False
    stored = pairs.view(torch.uint8).numpy().reshape(rows, blocks, 16)
    # Bytes 0 to 7 of a block hold its numbers 0 to 15, the others the rest.
    for place, ours in ((0, stored & 15), (1, stored >> 4)):
        numbers = packed[..., 1 + place :: 2]
        if not np.array_equal(numbers & 15, ours[..., :8]) or not np.array_equal(numbers >> 4, ours[..., 8:]):
            return False
    return True


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
