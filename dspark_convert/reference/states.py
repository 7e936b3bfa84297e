"""What a draft's layers hand to its heads."""

from __future__ import annotations

from typing import NamedTuple

import torch


class States(NamedTuple):
    """``final`` [slots, hidden], normed, for the logits; ``judged`` [slots, hidden], for the confidence.

    ``behind`` [stages, slots]: how bad a choice of experts was, see ``deepseek4.Stage.route``; None without experts.
    """

    final: torch.Tensor
    judged: torch.Tensor
    behind: torch.Tensor | None = None
