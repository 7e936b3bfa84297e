"""Fills the tensors of a file behind a header that is not there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from dspark_convert.ggufio.types import GGMLType, padded
from dspark_convert.jobs import TensorJob
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.writing.engine import Filled, fill
from tests.tensors.jobs import job, numbers, source

START = 96


def layout(made: list[TensorJob], alignment: int = 32) -> tuple[list[int], int]:
    """Absolute offsets of the tensors, and the end of the last one."""
    offsets, end = [], START
    for each in made:
        offsets.append(padded(end, alignment))
        end = offsets[-1] + each.nbytes
    return offsets, end


def run(path: Path, made: list[TensorJob], check: NonFinite | None = None, **more: object) -> Filled:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        return fill(descriptor, made, layout(made)[0], check=NonFinite() if check is None else check, path=path, **more)  # type: ignore[arg-type]
    finally:
        os.close(descriptor)


def as_f32(values: np.ndarray, dtype: str) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else values.astype(np.float32)


def many(tmp_path: Path, rows: int = 400) -> TensorJob:
    return job(source(tmp_path / "w", numbers("F32", (rows, 64)), "F32"), GGMLType.Q8_0)
