"""Does one row of a matrix lie far from the checkpoint's, where the whole does not show it?

A table has a row a token: one that is wrong moves the distance of the whole by 1/√rows, less than rounding to
few bits does, and no text that is run need read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: a row may be this many times further away than the whole: short rows scatter
SCATTER = 3
#: a row of zeros is 1 away, one of another token 1.4, a negated one 2
LIMIT = 0.9
#: types of one or two bits lie so far away by themselves that only rows of other tokens show
COARSE, COARSE_LIMIT = 0.5, 1.2
#: rows shorter than this share of the usual length are measured against it: rounding may make zeros of them
SHORT = 0.01
#: rows that are compared at once
CHUNK = 8192


def wrong_row(got: torch.Tensor, want: torch.Tensor, explained: float) -> tuple[int, float] | None:
    """The row of ``got`` [rows, columns] that is furthest from ``want``'s, and how far; None if all are near.

    Distances are as in ``distance``; ``explained`` is the distance of a whole tensor that its type explains.
    """
    import torch

    if want.dim() < 2:
        return None
    parts = range(0, len(want), CHUNK)
    sizes = torch.cat([want[i : i + CHUNK].double().norm(dim=1) for i in parts])
    apart = torch.cat([(got[i : i + CHUNK].double() - want[i : i + CHUNK].double()).norm(dim=1) for i in parts])
    usual = float(sizes.mean())
    if not usual:
        return None
    relative = apart / sizes.clamp(min=SHORT * usual)
    row = int(relative.argmax())
    limit = min(SCATTER * explained, LIMIT) if explained < COARSE else COARSE_LIMIT
    furthest = float(relative[row])
    return None if furthest <= limit else (row, furthest)  # NaN is far away
