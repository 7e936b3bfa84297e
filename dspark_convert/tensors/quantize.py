"""Float32 rows to the bytes of any type that this package writes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.tensors import mxfp4, q8_0
from dspark_convert.tensors.casts import TARGET_TYPES, cast

#: the types that ``quantize`` makes
WRITABLE = frozenset({*TARGET_TYPES, GGMLType.MXFP4})


def quantize(
    values: NDArray[np.float32], ggml_type: GGMLType, out: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """Flat bytes of ``values`` [rows, columns] as ``ggml_type``, one of WRITABLE.

    The number of columns is a multiple of the type's block. What is not finite, or too large, gives
    a value or a scale of its block that is not finite (NaN for a NaN).
    """
    if ggml_type is GGMLType.MXFP4:
        return mxfp4.quantize(values, out)
    data = q8_0.quantize(values.reshape(-1)) if ggml_type is GGMLType.Q8_0 else cast(values, "F32", ggml_type)
    if out is None:
        return data
    out[...] = data
    return out
