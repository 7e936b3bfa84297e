"""What a draft's layers hand to its heads."""

from __future__ import annotations

from typing import NamedTuple

import torch

#: (stage, slot): there the second of two experts that are nearly equal is taken, see ``deepseek4.Stage.route``
Swap = tuple[int, int]


class States(NamedTuple):
    """``final`` [slots, hidden], normed, for the logits; ``judged`` [slots, hidden], for the confidence.

    ``margins`` [stages, slots]: how near a choice of experts was, see ``deepseek4.Stage.route``; None without experts.
    """

    final: torch.Tensor
    judged: torch.Tensor
    margins: torch.Tensor | None = None
