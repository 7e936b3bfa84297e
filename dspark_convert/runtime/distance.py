"""How far a tensor is from another one, as a share of its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: rows that are widened to float64 at once
ROWS = 4096


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """Root mean square of the difference over that of ``want``; infinite where that is zero and ``got`` is not.

    Both have one shape.
    """
    import torch

    apart = size = 0.0
    for ours, theirs in zip(torch.split(got, ROWS), torch.split(want, ROWS), strict=True):
        exact = theirs.double()
        apart += float((ours.double() - exact).square_().sum())
        size += float(exact.square().sum())
    if apart != apart:
        return float("inf")
    return (apart / size) ** 0.5 if size else (float("inf") if apart else 0.0)


def scale(got: torch.Tensor, want: torch.Tensor) -> float:
    """The factor that brings ``want`` nearest to ``got``, by least squares; 1 where ``want`` is zero."""
    import torch

    along = size = 0.0
    for ours, theirs in zip(torch.split(got, ROWS), torch.split(want, ROWS), strict=True):
        exact = theirs.double()
        along += float((ours.double() * exact).sum())
        size += float(exact.square().sum())
    return along / size if size else 1.0
