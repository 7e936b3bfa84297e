"""ggml's own quantiser as an oracle."""

from __future__ import annotations

import ctypes

import numpy as np

from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.tensors.ggml_quants import find_library


def chunk(values: np.ndarray, ggml_type: int) -> np.ndarray:
    """Flat bytes of finite float32 ``values`` [rows, columns] by the installed ggml."""
    function = ctypes.CDLL(str(find_library())).ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    assert np.isfinite(values).all() and values.dtype == np.float32 and values.flags.c_contiguous
    elements, size = BLOCKS[GGMLType(ggml_type)]
    out = np.empty(values.size // elements * size, np.uint8)
    assert function(int(ggml_type), values.ctypes.data, out.ctypes.data, 0, *values.shape, None) == out.size
    return out
