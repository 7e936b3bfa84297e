"""What DFlash2 (z-lab; vLLM's ``qwen3_dflash2``) puts around the layers of DFlash, and its selector.

A convolution stands before and behind attention and feed-forward (sides 0 and 1) and mixes a slot with those before
it in the block: tap t reads the slot t before, or nothing. Its taps are a table's, a number a channel, to which a
projection of the normed input of the layer's part adds one a group of channels. The target's features pass by it.

The selector takes each slot's best tokens and scores every pair of a token and its predecessor among the best of the
slot before: logit + <successor, predecessor * gate>, where the gate is a projection of the slot's final state. What
is drafted is the walk from the anchor on that takes the best at each step.

Shapes: slots, n_past, hidden, kernel (taps), vocab, rank, k (best tokens of a slot).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from dspark_convert.reference.dflash2_facts import (
    ATTENTION_CONV,
    MLP_CONV,
    PREDECESSORS,
    PROJECTION,
    SUCCESSORS,
    DFlash2Facts,
)
from dspark_convert.reference.facts import Facts
from dspark_convert.reference.qwen3 import Layer, Sizes, rms_norm
from dspark_convert.reference.states import States
from dspark_convert.reference.tables import block_rows
from dspark_convert.reference.views import visible
from dspark_convert.reference.weights import Floats, Weights

Ids = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Lattice(NamedTuple):
    """``candidates`` [slots, k] and ``scores`` [slots, k before, k]; the anchor's slot, which has none, -1 and NaN.

    Before slot 1 stands the anchor alone: all its rows are alike. ``behind`` [slots]: how far the worst candidate
    is behind the best token left, in deviations of the slot's logits; 0 where they are the best.
    """

    candidates: Ids
    scores: Floats
    behind: Floats

    def walk(self) -> list[int]:
        """The tokens that are drafted, of slots 1 and on (``common/speculative.cpp``, without its threshold)."""
        tokens, place = [], 0
        for ids, scores in zip(self.candidates[1:], self.scores[1:], strict=True):
            place = int(scores[place].argmax())
            tokens.append(int(ids[place]))
        return tokens


class DFlash2Stack:
    def __init__(self, facts: Facts, own: DFlash2Facts, weights: Weights, sizes: Sizes) -> None:
        self._facts, self._own, self._weights = facts, own, weights
        self._layers = [Layer(weights, i, sizes) for i in range(facts.n_layer)]

    def __call__(self, past: torch.Tensor, anchor: int, experts: torch.Tensor | None = None) -> States:  # noqa: ARG002
        facts, weights = self._facts, self._weights
        context = rms_norm(weights.linear(past, "fc.weight"), weights["hidden_norm.weight"], facts.rms_norm_eps)
        before = torch.arange(len(past))
        here = len(past) + torch.arange(facts.slots)
        x = block_rows(facts, weights, anchor)
        for index, (layer, view) in enumerate(zip(self._layers, facts.views, strict=True)):
            h = layer.norm(x, "input_layernorm")
            into, out = self._taps(h, index, ATTENTION_CONV)
            h = convolve(h, into)
            k = torch.cat((layer.keys(context, before), layer.keys(h, here)))
            v = torch.cat((layer.values(context), layer.values(h)))
            sees = visible(len(past), facts.slots, view, from_block=facts.window_from_block)
            x = x + convolve(layer.attend(layer.queries(h, here), k, v, sees), out)
            h = layer.norm(x, "post_attention_layernorm")
            into, out = self._taps(h, index, MLP_CONV)
            x = x + convolve(layer.gated(convolve(h, into)), out)
        final = rms_norm(x, weights["norm.weight"], facts.rms_norm_eps)
        return States(final, final)

    def _taps(self, h: torch.Tensor, layer: int, name: str) -> Iterator[torch.Tensor]:
        """[slots, hidden] -> for each side [slots, kernel, hidden]: what the taps are multiplied by.

        The projection's rows are ordered by side, tap and group.
        """
        base = self._weights[f"layers.{layer}.{name}.base_kernel"]
        added = self._weights.linear(h, f"layers.{layer}.{name}.kernel_projection.weight")
        sides = added.view(len(h), 2, self._own.kernel, -1).repeat_interleave(self._own.group, -1)
        return (base[side] + sides[:, side] for side in (0, 1))


def convolve(x: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """[slots, hidden], by ``taps`` [slots, kernel, hidden]; slots before the block's first count as 0."""
    out = torch.zeros_like(x)
    for back in range(min(taps.shape[1], len(x))):
        out[back:] += taps[back:, back] * x[: len(x) - back]
    return out


def lattice(
    weights: Weights,
    top_k: int,
    anchor: int,
    final: torch.Tensor,
    logits: torch.Tensor,
    candidates: torch.Tensor | None = None,
) -> Lattice:
    """Of ``final`` [slots, hidden] and its ``logits`` [slots, vocab]. ``candidates`` [slots, k] are taken if given."""
    ids = logits.topk(top_k, -1).indices if candidates is None else candidates.clone()
    unary = logits.gather(-1, ids.clamp(min=0))
    left = logits.scatter(-1, ids.clamp(min=0), -torch.inf).amax(-1)
    behind = (left - unary.amin(-1)).clamp(min=0) / logits.std(-1, correction=0)
    previous = torch.cat((torch.full((1, top_k), anchor), torch.full((1, top_k), anchor), ids[1:-1]))[: len(ids)]
    gated = weights.rows(PREDECESSORS, previous) * weights.linear(final, PROJECTION).unsqueeze(1)
    scores = unary.unsqueeze(1) + torch.einsum("spr,scr->spc", gated, weights.rows(SUCCESSORS, ids.clamp(min=0)))
    ids[0], scores[0], behind[0] = -1, torch.nan, 0
    return Lattice(ids.numpy(), scores.numpy(), behind.numpy())
