"""The ggml types that ggml's own quantiser has to make, through whichever ggml library is at hand.

``ggml_quantize_chunk`` runs in this process, as a C function that knows nothing of Python: several
threads may quantise rows of one tensor at a time, and get the same bytes. Its quantisers were not
written for NaN and infinities: most of them give a block that looks sound, and builds with
assertions stop the process. So such blocks never reach them: see ``quantize``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dspark_convert.errors import EnvironmentFault
from dspark_convert.ggufio.types import BLOCKS, F16_AT, GGMLType
from dspark_convert.native import LIBRARY_VARIABLE, SUBDIRECTORIES, WRAPPER_NAMES, library_in, package_directories
from dspark_convert.tensors.dequantise import dequantise

#: type -> root mean square error of quantised normal numbers, by far exceeded when the bytes are of another type
TYPES: dict[GGMLType, float] = {
    GGMLType.Q4_1: 0.12,
    GGMLType.Q5_1: 0.06,
    GGMLType.Q2_K: 0.4,
    GGMLType.Q3_K: 0.2,
    GGMLType.Q4_K: 0.1,
    GGMLType.Q5_K: 0.05,
    GGMLType.Q6_K: 0.03,
    GGMLType.IQ4_NL: 0.1,
    GGMLType.IQ4_XS: 0.1,
}

#: far above what an f16 scale can hold, far below where ggml's sums of squares overflow
LARGEST = np.float32(2.0**40)

_NAMES = (
    "libggml-base.so",
    "libggml-base.so.*",
    "libggml-base.dylib",
    "ggml-base.dll",
    "libllama.so",
    "libllama.dylib",
    *WRAPPER_NAMES,
)
#: package -> directories in it that may hold the library
_PACKAGES = {"libggml": ("lib64", "lib", "bin"), "xllamacpp": (".",), "llama_cpp": ("lib", ".")}

Quantizer = Callable[..., int]


def quantize(
    values: NDArray[np.float32], ggml_type: GGMLType, library: Path, out: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """Flat bytes of ``values`` [rows, columns] as ``ggml_type``, one of TYPES, by the checked ``library``.

    The number of columns is a multiple of the type's block. A block with a NaN gets NaN for its
    scales, one with an infinity or a number above 2**40 an infinite scale; the rest of it is zero.
    Raises EnvironmentFault if the library cannot be used or does not quantise as ggml does, ValueError for
    rows of another length, of which ggml would stop the process.
    """
    elements, size = BLOCKS[ggml_type]
    if values.shape[1] % elements:
        raise ValueError(f"{ggml_type.name} needs rows that are a multiple of {elements}, not {values.shape[1]}")
    values = np.ascontiguousarray(values, np.float32)
    n_blocks = values.size // elements
    data = np.empty(n_blocks * size, np.uint8) if out is None else out
    maxima = np.abs(values).reshape(n_blocks, elements).max(axis=1, initial=0)
    bad = ~(maxima <= LARGEST)
    if bad.any():
        values = values.copy()
        values.reshape(n_blocks, elements)[bad] = 0
    _run(_checked(library, ggml_type), values, ggml_type, data)
    for offset in F16_AT[ggml_type]:
        scale = data.reshape(n_blocks, size)[:, offset : offset + 2]
        scale[bad] = np.where(np.isnan(maxima[bad]), np.nan, np.inf).astype("<f2").view(np.uint8).reshape(-1, 2)
    return data


def find_library(explicit: Path | None = None) -> Path:
    """The library to quantise with: ``explicit``, else the environment variable, else what is installed.

    Raises EnvironmentFault if there is none.
    """
    if explicit is None and (value := os.environ.get(LIBRARY_VARIABLE)):
        explicit = Path(value)
    if explicit is not None:
        for path in (explicit, *(explicit / below for below in SUBDIRECTORIES)):
            if found := path if path.is_file() else library_in(path, _NAMES):
                return found
        raise EnvironmentFault(f"{explicit}: there is no ggml library here; name the file of one.")
    for package, directories in _PACKAGES.items():
        for root in package_directories(package):
            for directory in directories:
                if found := library_in(root / directory, _NAMES):
                    return found
    raise EnvironmentFault(
        "no ggml library was found, which quantises to this type; install one with: pip install libggml-python"
        f" (or xllamacpp), or name your own build in {LIBRARY_VARIABLE}."
    )


@cache
def _checked(library: Path, ggml_type: GGMLType) -> Quantizer:
    """ggml_quantize_chunk of ``library``, once known rows came out as they should.

    Zeros must give zero; normal numbers must come back with the type's usual error.
    """
    try:
        function = ctypes.CDLL(str(library)).ggml_quantize_chunk
    except (OSError, AttributeError) as fault:
        raise EnvironmentFault(f"{library}: cannot be used to quantise: {fault}.") from fault
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    rows = np.random.default_rng(0).standard_normal((4, 256), np.float32)
    rows[1] = 0
    elements, size = BLOCKS[ggml_type]
    # as much room as the widest type takes, should the library write another one
    data = np.empty(rows.nbytes, np.uint8)[: rows.size // elements * size]
    _run(function, rows, ggml_type, data)
    with np.errstate(all="ignore"):
        error = dequantise(data.data, ggml_type.name).reshape(rows.shape) - rows
    if not (error[1] == 0).all() or not 0 < np.sqrt(np.square(error).mean()) < TYPES[ggml_type]:
        raise EnvironmentFault(
            f"{library}: its ggml does not quantise to {ggml_type.name} as the ggml known here does: known numbers "
            "come out wrong; use another build."
        )
    return function


def _run(function: Quantizer, values: NDArray[np.float32], ggml_type: GGMLType, data: NDArray[np.uint8]) -> None:
    rows, columns = values.shape
    done = function(int(ggml_type), values.ctypes.data, data.ctypes.data, 0, rows, columns, None)
    if done != data.size:
        raise EnvironmentFault(f"ggml wrote {done} bytes of {ggml_type.name} where {data.size} were due.")
