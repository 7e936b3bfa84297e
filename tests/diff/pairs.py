"""Two good files that differ in what a test says, and their diff."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from dspark_convert.diff.compare import Diff, compare, compare_deep
from dspark_convert.diff.values import ValueDiff
from tests.draft_file import TYPES, DraftFile

Change = Callable[[DraftFile], object]

#: more types than the good files have: (number, elements a block, bytes a block)
TYPES |= {"Q4_0": (2, 32, 18), "Q4_K": (12, 256, 144), "IQ2_XXS": (16, 256, 66), "NVFP4": (40, 64, 36)}
TYPES |= {"F64": (28, 1, 8), "I32": (26, 1, 4)}


def write_pair(root: Path, change: Change, make: Callable[[], DraftFile] = DraftFile) -> tuple[Path, Path]:
    """The good file, and another one after ``change``; a tensor that is not changed holds the same in both."""
    first, second = make(), make()
    fill(first)
    fill(second)
    change(second)
    return first.write(root / "a.gguf"), second.write(root / "b.gguf")


def fill(file: DraftFile) -> None:
    """Give each tensor numbers of its own, whatever becomes of the others."""
    for index, (name, (kind, shape)) in enumerate(file.tensors.items()):
        if kind in ("F32", "F16", "BF16", "Q8_0", "MXFP4"):
            values = np.random.default_rng(index).normal(size=shape[::-1]).astype(np.float32)
            file.data[name] = encoded(values, kind)


def encoded(values: NDArray[np.float32], kind: str) -> bytes:
    """``values`` as gguf-py writes them."""
    made: NDArray[Any] = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
    return made.tobytes()


def put(file: DraftFile, name: str, values: NDArray[np.float32], kind: str = "F32") -> None:
    """Let ``file`` hold ``values`` (row-major) under ``name``."""
    file.tensors[name] = (kind, values.shape[::-1])
    file.data[name] = encoded(values, kind)


def held(file: DraftFile, name: str) -> NDArray[np.float32]:
    """The numbers of an F32 tensor of ``file``, row-major."""
    shape = file.tensors[name][1][::-1]
    return np.frombuffer(file.data[name], "<f4").reshape(shape).copy()


def deep(a: Path, b: Path) -> Diff:
    diff = compare(a, b)
    return replace(diff, values=compare_deep(diff, lambda _bytes: None))


def value(diff: Diff, name: str) -> ValueDiff:
    assert diff.values is not None
    (found,) = [each for each in diff.values if each.name == name]
    return found


def judged(diff: Diff) -> dict[str, str]:
    """Judgement of each tensor that is not identical."""
    assert diff.values is not None
    return {each.name: each.judgement for each in diff.values if each.judgement != "identical"}
