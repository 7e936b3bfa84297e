"""What a matrix looks like whose codes or scales were repacked wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dspark_convert.runtime.stored import NVFP4_BLOCK

if TYPE_CHECKING:
    import torch


def packings(want: torch.Tensor, block: int) -> Iterator[tuple[str, torch.Tensor]]:
    """The matrix ``want`` [rows, columns] with its pairs of four-bit numbers in a wrong order.

    ``block``: how many share a scale, see ``Stored.block``.
    """
    if not block or want.shape[-1] % block:
        return
    pairs = want.reshape(len(want), -1, 2)
    yield "the two numbers of each byte are exchanged", pairs.flip(-1).reshape(want.shape)
    blocks = want.reshape(len(want), -1, block // 2, 2)
    halves = blocks.transpose(-1, -2)
    kind = "NVFP4" if block == NVFP4_BLOCK else "MXFP4"
    yield f"its bytes are the checkpoint's, in another order than {kind} has", halves.reshape(want.shape)
    yield "its bytes are so and their halves exchanged", halves.flip(-2).reshape(want.shape)


def other_scales(got: torch.Tensor, want: torch.Tensor, limit: float, block: int) -> bool:
    """Whether each ``block`` of columns is the right one but for a factor: by least squares, not by the same all."""
    if want.dim() != 2 or got.shape != want.shape or want.shape[1] % block:
        return False
    ours, theirs = (t.double().reshape(len(want), -1, block) for t in (got, want))
    factors = (ours * theirs).sum(-1, keepdim=True) / theirs.square().sum(-1, keepdim=True).clamp(min=1e-300)
    left = (ours - factors * theirs).square().sum()
    size = (factors * theirs).square().sum()
    return bool(left <= limit**2 * size and factors.min() > 0 and factors.max() > 1.5 * factors.min())
