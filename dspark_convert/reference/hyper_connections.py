"""Hyper-connections: several residual streams instead of one (manifold-constrained, DeepSeek-V4).

A block reads a mix of the streams and adds its output to all of them, which are mixed among themselves; all
weights of the mixing come from the streams. Shapes: n tokens, copies (streams), hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Mixer:
    """The weights of one place: ``fn`` [mixes, copies * hidden], ``scale`` [parts], ``base`` [mixes].

    Mixes are, in this order: copies to read the streams, copies to write to them, copies² to mix them among
    themselves (row: from, column: to), and a scale for each of the three parts. The collapse at the end has
    the first part only.
    """

    fn: torch.Tensor
    scale: torch.Tensor
    base: torch.Tensor
    norm_eps: float
    eps: float
    iterations: int

    def part(self, streams: torch.Tensor, index: int, first: int, count: int) -> torch.Tensor:
        """[n, copies, hidden] -> [n, count] of the mixes from ``first`` on, scaled by scale ``index``."""
        flat = streams.flatten(1)
        normed = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + self.norm_eps)
        chosen = slice(first, first + count)
        return normed @ self.fn[chosen].T * self.scale[index] + self.base[chosen]

    def read(self, streams: torch.Tensor) -> torch.Tensor:
        """[n, copies, hidden] -> [n, hidden]."""
        weights = self.part(streams, 0, 0, streams.shape[1]).sigmoid() + self.eps
        return torch.einsum("nc,nch->nh", weights, streams)

    def write(self, streams: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """The streams [n, copies, hidden] behind a block that read them and put out ``output`` [n, hidden]."""
        copies = streams.shape[1]
        weights = 2 * self.part(streams, 1, copies, copies).sigmoid()
        mixing = self.part(streams, 2, 2 * copies, copies**2).view(-1, copies, copies)
        mixed = torch.einsum("nst,nsh->nth", sinkhorn(mixing, self.eps, self.iterations), streams)
        return mixed + weights.unsqueeze(-1) * output.unsqueeze(1)


def sinkhorn(mixing: torch.Tensor, eps: float, iterations: int) -> torch.Tensor:
    """[n, from, to] of any numbers -> rows and columns that sum to 1, nearly (Sinkhorn and Knopp 1967).

    The first round's rows come from a softmax; ``eps`` is added to it and to every sum.
    """
    mixing = mixing.softmax(-1) + eps
    mixing = mixing / (mixing.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        mixing = mixing / (mixing.sum(-1, keepdim=True) + eps)
        mixing = mixing / (mixing.sum(-2, keepdim=True) + eps)
    return mixing
