"""What a matrix looks like whose codes or scales were repacked wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: numbers that share a scale, in FP4; of FP8 a tile's width is a multiple of it
BLOCK = 32


def packings(want: torch.Tensor, own: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The expert ``want`` [rows, columns] with its pairs of FP4 numbers in a wrong order."""
    if ".experts." not in own or want.shape[-1] % BLOCK:
        return
    pairs = want.reshape(len(want), -1, 2)
    yield "the two numbers of each byte are exchanged", pairs.flip(-1).reshape(want.shape)
    blocks = want.reshape(len(want), -1, BLOCK // 2, 2)
    halves = blocks.transpose(-1, -2)
    yield "its bytes are the checkpoint's, in another order than MXFP4 has", halves.reshape(want.shape)
    yield "its bytes are so and their halves exchanged", halves.flip(-2).reshape(want.shape)


def other_scales(got: torch.Tensor, want: torch.Tensor, limit: float) -> bool:
    """Whether each block of 32 columns is the right one but for a factor: by least squares, and not by the same all."""
    if want.dim() != 2 or got.shape != want.shape or want.shape[1] % BLOCK:
        return False
    ours, theirs = (t.double().reshape(len(want), -1, BLOCK) for t in (got, want))
    factors = (ours * theirs).sum(-1, keepdim=True) / theirs.square().sum(-1, keepdim=True).clamp(min=1e-300)
    left = (ours - factors * theirs).square().sum()
    size = (factors * theirs).square().sum()
    return bool(left <= limit**2 * size and factors.min() > 0 and factors.max() > 1.5 * factors.min())
