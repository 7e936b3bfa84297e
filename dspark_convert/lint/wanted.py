"""One entry of a list of tensors that a loader knows."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Wanted:
    """A tensor that may stand in the file; ``shape`` in ggml order.

    ``flat``: llama.cpp counts its elements only, so it may also have fewer dimensions.
    """

    name: str
    shape: tuple[int, ...]
    required: bool = True
    flat: bool = False

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of ``shape`` is this one, rows of the right length in the right number."""
        if self.flat and shape[0] == self.shape[0]:
            return prod(shape) == prod(self.shape)
        return trimmed(shape) == trimmed(self.shape)


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """ggml makes no difference between [n] and [n, 1, 1, 1]."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape
