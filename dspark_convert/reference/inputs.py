"""What ggml's matrix products do to their inputs on a CPU, which depends on the type of the matrix.

A product of a matrix of few bits multiplies whole numbers: the input is rounded to Q8_0 first, block by block (to
Q8_K for k-quants), as it is rounded to BF16 or F16 for a matrix of those. By itself that moves a draft's logits
by a tenth of their deviation, and where it tips the choice of an expert, by all of it. Rounding alike brings them
within 1e-6 on a tiny draft, but for blocks in which an input lies so near the middle of two steps that the two
sides' own rounding parts it: from there on they differ as if nothing had been done. The larger the draft, the more
do.
"""

from __future__ import annotations

from typing import Literal

import torch

Rounding = Literal["q8_0", "q8_k", "bf16", "f16"]

#: numbers of a Q8_0 block, which share a scale, and of a Q8_K block
BLOCK = 32
LARGE_BLOCK = 256


def round_input(x: torch.Tensor, rounding: Rounding) -> torch.Tensor:
    """``x`` [..., columns] as the product sees it, in its own dtype."""
    if rounding == "q8_k":
        return _round_to_q8_k(x)
    if rounding != "q8_0":
        return x.to(torch.bfloat16 if rounding == "bf16" else torch.float16).to(x.dtype)
    blocks = x.to(torch.float32).reshape(*x.shape[:-1], -1, BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True)
    scale = (largest / 127).to(torch.float16)
    steps = (blocks * torch.where(largest > 0, 127 / largest, 0)).round()
    return (steps.to(x.dtype) * scale.to(x.dtype)).flatten(-2)


def _round_to_q8_k(x: torch.Tensor) -> torch.Tensor:
    """The number that is furthest from zero becomes -127 steps; the scale stays a float32."""
    blocks = x.to(torch.float32).reshape(*x.shape[:-1], -1, LARGE_BLOCK)
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    inverse = torch.where(largest != 0, -127 / largest, 0)
    steps = (blocks * inverse).round().clamp(max=127)
    scale = torch.where(largest != 0, 1 / inverse, 0)
    return (steps.to(x.dtype) * scale.to(x.dtype)).flatten(-2)
