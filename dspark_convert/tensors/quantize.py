"""Float32 rows to the bytes of any type that this package writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.ggufio.types import BLOCKS, F16_AT, GGMLType
from dspark_convert.tensors import ggml_quants, mxfp4, q4_q5, q8_0
from dspark_convert.tensors.casts import TARGET_TYPES, cast

Bytes = NDArray[np.uint8]

#: types made here, without a library
_OURS: dict[GGMLType, Callable[[NDArray[np.float32]], Bytes]] = {
    GGMLType.Q8_0: q8_0.quantize,
    GGMLType.Q4_0: q4_q5.quantize_q4_0,
    GGMLType.Q5_0: q4_q5.quantize_q5_0,
    GGMLType.MXFP4: mxfp4.quantize,
}

#: the types that ``quantize`` makes
WRITABLE = frozenset({*TARGET_TYPES, *_OURS, *ggml_quants.TYPES})
#: those of them for which a ggml library is needed
NEED_LIBRARY = WRITABLE - TARGET_TYPES - _OURS.keys()

#: byte offset of each f16 scale in a block, of the types that have some
F16_SCALES = {kind: at for kind, at in F16_AT.items() if kind in WRITABLE}


def quantize(
    values: NDArray[np.float32], ggml_type: GGMLType, out: Bytes | None = None, *, library: Path | None = None
) -> Bytes:
    """Flat bytes of ``values`` [rows, columns] as ``ggml_type``, one of WRITABLE.

    The number of columns is a multiple of the type's block. What is not finite, or too large, gives
    a value or a scale of its block that is not finite. Without ``out`` the result of F32 shares
    memory with ``values``. ``library`` is used for NEED_LIBRARY, by default what is installed;
    raises EnvironmentFault if there is none, or it does not quantise as ggml does.
    """
    if ggml_type in NEED_LIBRARY:
        return ggml_quants.quantize(values, ggml_type, library or _installed(), out)
    flat = values.reshape(-1)
    data = _OURS[ggml_type](flat) if ggml_type in _OURS else cast(flat, "F32", ggml_type)
    if out is None:
        return data
    out[...] = data
    return out


def f16_scales(data: Bytes, ggml_type: GGMLType) -> NDArray[np.float16]:
    """The f16 scales (and minima) [n_blocks, scales] of ``data``, whose type is in F16_SCALES."""
    blocks = data.reshape(-1, BLOCKS[ggml_type][1])
    found: NDArray[Any] = np.stack([blocks[:, at : at + 2] for at in F16_SCALES[ggml_type]], axis=1)
    return found.reshape(len(blocks), -1).view("<f2")


@cache
def _installed() -> Path:
    return ggml_quants.find_library()
