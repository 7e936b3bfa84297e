"""The stages of a DeepSeek-V4 draft, as DeepSeek's own inference code defines them (``DSparkBlock``).

A stage is a layer of the target without compressed attention: compressed queries, one key head that is the
values too, a low-rank output projection in groups, and experts, between hyper-connections. Rotation turns the
trailing dimensions of queries and keys in neighbouring pairs; since values are rotated keys, what attention
puts out is turned back. DeepSeek's code rounds activations to FP8 on the way, as its training did: not here.

Where two experts are as good as equal, rounding decides which of them is taken, and what is computed is another
thing from there on. So a stage takes those that it is told to, and says how much better others would have been.

Shapes: n tokens, m keys, hidden, heads, d (numbers a head), copies (residual streams).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from dspark_convert.reference.deepseek4_facts import StageFacts
from dspark_convert.reference.hyper_connections import Mixer
from dspark_convert.reference.qwen3 import Sizes, rms_norm
from dspark_convert.reference.rotation import angles
from dspark_convert.reference.weights import Weights

#: below any deviation, and no zero
TINY = 1e-30


@dataclass(frozen=True)
class Stage:
    """One stage's arithmetic over the weights ``mtp.{index}.*``."""

    weights: Weights
    index: int
    sizes: Sizes
    facts: StageFacts

    def __call__(
        self,
        streams: torch.Tensor,
        positions: torch.Tensor,
        context: torch.Tensor,
        sees: torch.Tensor,
        taken: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, copies, hidden] at ``positions`` -> the same behind the stage, and ``behind`` of ``route`` [n].

        ``context`` [m - n, hidden] are the target's features at positions 0 and on; ``sees`` [n, m]: which of
        the keys, the context's before the block's own, a token looks at; ``taken``: see ``route``.
        """
        mixer = self.mixer("attn")
        h = self.norm(mixer.read(streams), "attn_norm")
        keys = torch.cat((self.keys(context, torch.arange(len(context))), self.keys(h, positions)))
        streams = mixer.write(streams, self.attend(self.queries(h, positions), keys, positions, sees))
        mixer = self.mixer("ffn")
        out, behind = self.experts(self.norm(mixer.read(streams), "ffn_norm"), taken)
        return mixer.write(streams, out), behind

    def weight(self, name: str) -> torch.Tensor:
        return self.weights[f"mtp.{self.index}.{name}"]

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return self.weights.linear(x, f"mtp.{self.index}.{name}.weight")

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, self.weight(f"{name}.weight"), self.sizes.eps)

    def mixer(self, part: str) -> Mixer:
        return mixer(self.weights, f"mtp.{self.index}.hc_{part}", self.sizes.eps, self.facts)

    def queries(self, h: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, heads, d]; each head's numbers are normed, without weights."""
        q = self.linear(self.norm(self.linear(h, "attn.wq_a"), "attn.q_norm"), "attn.wq_b")
        q = q.view(len(h), self.sizes.heads, self.sizes.head_dim)
        return self.turn(q * torch.rsqrt(q.square().mean(-1, keepdim=True) + self.sizes.eps), positions)

    def keys(self, h: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, d]."""
        return self.turn(self.norm(self.linear(h, "attn.wkv"), "attn.kv_norm").unsqueeze(1), positions).squeeze(1)

    def turn(self, x: torch.Tensor, positions: torch.Tensor, *, back: bool = False) -> torch.Tensor:
        """RoPE of the last ``rope_dims`` of ``x`` [n, heads, d]: numbers 2i and 2i + 1 turn by angle i, or back."""
        still, last = x[..., : -self.facts.rope_dims], x[..., -self.facts.rope_dims :]
        half = self.facts.rope_dims // 2
        by = angles(positions, half, self.sizes.theta, float32=self.sizes.float32_angles).unsqueeze(1)
        cos, sin = by.cos().to(x.dtype), (-by if back else by).sin().to(x.dtype)
        even, odd = last[..., 0::2], last[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)
        return torch.cat((still, turned), -1)

    def attend(self, q: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor, sees: torch.Tensor) -> torch.Tensor:
        """[n, heads, d] over [m, d] -> [n, hidden]. A head's sink takes a share of the attention to nothing."""
        scores = torch.einsum("nhd,md->nhm", q, keys) / self.sizes.head_dim**0.5
        scores = scores.masked_fill(~sees.unsqueeze(1), -torch.inf)
        sinks = self.weight("attn.attn_sink").view(1, -1, 1).expand(len(q), -1, 1)
        shares = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        mixed = self.turn(torch.einsum("nhm,md->nhd", shares, keys), positions, back=True)
        grouped = mixed.reshape(len(q), self.facts.o_groups, -1)
        grouped = self.weights.seen_by(f"mtp.{self.index}.attn.wo_a.weight", grouped)
        down = self.weight("attn.wo_a.weight").view(self.facts.o_groups, self.facts.o_lora_rank, -1)
        return self.linear(torch.einsum("ngi,gri->ngr", grouped, down).flatten(1), "attn.wo_b")

    def experts(self, h: torch.Tensor, taken: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, hidden] -> [n, hidden]: the chosen experts, weighed, and the shared one; and ``behind`` [n]."""
        out = self.expert(h, "ffn.shared_experts")
        chosen, shares, behind = self.route(h, taken)
        for e in sorted({e for row in chosen.tolist() for e in row}):
            token, place = (chosen == e).nonzero(as_tuple=True)
            out[token] += shares[token, place].unsqueeze(-1) * self.expert(h[token], f"ffn.experts.{e}")
        return out, behind

    def route(
        self, h: torch.Tensor, taken: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The experts of each token and their shares, [n, used]. The bias takes part in the choice alone.

        ``taken`` [n, used] are taken instead of those with the best scores, but for tokens of -1. And ``behind``
        [n]: how far the worst one taken is behind the best one left, in deviations of all experts' scores; 0 for
        the best.
        """
        affinities = functional.softplus(self.linear(h, "ffn.gate")).sqrt()
        scores = affinities + self.weight("ffn.gate.bias")
        chosen = scores.topk(self.facts.n_expert_used, -1).indices
        if taken is not None:
            chosen = torch.where(taken >= 0, taken, chosen)
        left = scores.scatter(-1, chosen, -torch.inf).amax(-1)
        lag = (left - scores.gather(-1, chosen).amin(-1)).clamp(min=0)
        behind = lag / scores.std(-1, correction=0).clamp(min=TINY)
        shares = affinities.gather(-1, chosen)
        if self.facts.expert_weights_norm:
            shares = shares / shares.sum(-1, keepdim=True)
        return chosen, shares * self.facts.expert_weights_scale, behind

    def expert(self, h: torch.Tensor, name: str) -> torch.Tensor:
        """SwiGLU whose gate is cut off above the limit, and whose other factor on both sides."""
        limit = self.facts.swiglu_limit
        gate = self.linear(h, f"{name}.w1").clamp(max=limit)
        up = self.linear(h, f"{name}.w3").clamp(-limit, limit)
        return self.linear(functional.silu(gate) * up, f"{name}.w2")


def mixer(weights: Weights, name: str, norm_eps: float, facts: StageFacts) -> Mixer:
    return Mixer(
        fn=weights[f"{name}_fn"],
        scale=weights[f"{name}_scale"],
        base=weights[f"{name}_base"],
        norm_eps=norm_eps,
        eps=facts.hyper_connection_eps,
        iterations=facts.sinkhorn_iterations,
    )


def visible(n_past: int, slots: int, window: int, *, by_distance: bool) -> torch.Tensor:
    """[slots, n_past + slots]: which target positions and slots a slot looks at.

    By definition each looks at the ``window`` last target positions and all slots. ``by_distance``: at what is
    less than ``window`` positions before itself, as llama.cpp counts, so that slot k sees k + 1 fewer.
    """
    positions = torch.arange(n_past + slots)
    if by_distance:
        return positions[n_past:, None] - positions < window
    return (positions >= n_past - window).expand(slots, -1)
