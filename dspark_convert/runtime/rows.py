"""Does one row of a matrix lie far from the checkpoint's, where the whole does not show it?

A table has a row a token: one that is wrong moves the distance of the whole by 1/√rows, less than rounding to
few bits does, and no text that is run need read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark_convert.tensors.precision import SHORT_ROW, row_limit

if TYPE_CHECKING:
    import torch

#: rows that are compared at once
CHUNK = 8192


def wrong_row(got: torch.Tensor, want: torch.Tensor, explained: float) -> tuple[int, float] | None:
    """The row of ``got`` [..., rows, columns] that is furthest from ``want``'s, and how far; None if all are near.

    Distances are as in ``distance``; ``explained`` is the distance of a whole tensor that its type explains.
    """
    import torch

    if want.dim() < 2:
        return None
    got, want = got.flatten(0, -2), want.flatten(0, -2)
    parts = range(0, len(want), CHUNK)
    sizes = torch.cat([want[i : i + CHUNK].double().norm(dim=1) for i in parts])
    apart = torch.cat([(got[i : i + CHUNK].double() - want[i : i + CHUNK].double()).norm(dim=1) for i in parts])
    usual = float(sizes.mean())
    if not usual:
        return None
    relative = apart / sizes.clamp(min=SHORT_ROW * usual)
    row = int(relative.argmax())
    limit = row_limit(explained)
    furthest = float(relative[row])
    return None if furthest <= limit else (row, furthest)  # NaN is far away
