"""What mutants of the tensors do to a file, and the sizes of the trained pair's draft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.mutations.copies import Change, Copy

Array = NDArray[Any]

LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, TAPS = 3, 4, 2, 32, 128, 3


def on(names: list[str], make: Callable[[Array], Array]) -> Change:
    def change(file: Copy) -> None:
        for name in names:
            file.tensors[name] = make(file.tensors[name])

    return change


def in_layer(layer: int, *parts: str) -> list[str]:
    return [f"blk.{layer}.{part}.weight" for part in parts]


def swapped(first: str, second: str) -> Change:
    def change(file: Copy) -> None:
        tensors = file.tensors
        tensors[first], tensors[second] = tensors[second], tensors[first]

    return change


def copied(source: str, name: str) -> Change:
    def change(file: Copy) -> None:
        file.tensors[name] = file.tensors[source]

    return change


def lost(*names: str) -> Change:
    def change(file: Copy) -> None:
        for name in names:
            del file.tensors[name]

    return change


def negated_row(row: int) -> Callable[[Array], Array]:
    return lambda a: np.concatenate([a[:row], -a[row : row + 1], a[row + 1 :]])
