"""Makes TensorJobs whose source is a file of raw numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob, Transform
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors.casts import SOURCE_DTYPES


def source(path: Path, values: NDArray, dtype: str, *, offset: int = 24, name: str | None = None) -> TensorRef:
    """``values`` (BF16 as uint16 bits) in a file of its own, behind ``offset`` bytes of rubbish."""
    data = values.astype(SOURCE_DTYPES[dtype]).tobytes()
    path.write_bytes(b"\xff" * offset + data + b"\xee" * 8)
    return TensorRef(name or path.name, path, dtype, values.shape, offset, len(data))


def job(
    ref: TensorRef | None,
    target: GGMLType,
    *,
    shape: tuple[int, ...] | None = None,
    transform: Transform = "copy",
    name: str = "out.weight",
) -> TensorJob:
    if shape is None:
        assert ref is not None
        shape = ref.shape[::-1]
    return TensorJob(name, target, shape, (Source(ref),) if ref else (), transform)


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> NDArray:
    """Normal random numbers in ``dtype`` (BF16 as uint16 bits)."""
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    if dtype == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(SOURCE_DTYPES[dtype])
