"""Stored values back to float32: whatever type a target keeps its embeddings in, or a draft its weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dspark_convert.tensors import mxfp4, nvfp4
from dspark_convert.tensors.casts import SOURCE_DTYPES, to_f32
from dspark_convert.tensors.kquants import DEQUANTISERS

#: names of safetensors dtypes and ggml types that ``dequantise`` reads
READABLE = frozenset({*SOURCE_DTYPES, "MXFP4", "NVFP4", *DEQUANTISERS})


def dequantise(data: bytes | memoryview, kind: str) -> NDArray[np.float32]:
    """The values of ``data`` (whole blocks of ``kind``, one of READABLE), flat float32."""
    if kind in SOURCE_DTYPES:
        return to_f32(np.frombuffer(data, SOURCE_DTYPES[kind]), kind)
    stored = np.frombuffer(data, np.uint8)
    if kind == "MXFP4":
        return mxfp4.dequantize(stored)
    if kind == "NVFP4":
        return nvfp4.dequantize(stored)
    size, function = DEQUANTISERS[kind]
    return function(stored.reshape(-1, size))
