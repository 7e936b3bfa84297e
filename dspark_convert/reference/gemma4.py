"""The layers of a Gemma4 draft, as DeepSpec (``Gemma4DSparkDecoderLayer``) and transformers' Gemma 4 define them.

Queries and keys are normed with weights, values without; with ``key_is_value`` these are the keys before norm and
rotation. Scores are not divided by the root of a head's size. What attention and feed-forward put out is normed before
it is added, and the layer's output is scaled. Norms multiply by their weights as they are stored.

Shapes: n tokens, m keys, hidden, heads, kv (key heads), d (numbers a head).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch.nn import functional

from dspark_convert.reference.facts import Facts
from dspark_convert.reference.gemma4_facts import Gemma4Facts
from dspark_convert.reference.qwen3 import Sizes, in_all_layers, rms_norm
from dspark_convert.reference.rotation import angles, turn
from dspark_convert.reference.states import States
from dspark_convert.reference.tables import block_rows
from dspark_convert.reference.weights import Shape, Weights

#: ggml's table of GELU is left where an input is further from 0
TABLE_END = 10


@dataclass(frozen=True)
class Gemma4Layer:
    """One layer's arithmetic over the weights ``layers.{index}.*``. ``table_gelu``: see ``gelu``."""

    weights: Weights
    index: int
    sizes: Sizes
    facts: Gemma4Facts
    table_gelu: bool = False

    def __call__(self, x: torch.Tensor, positions: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """[n, hidden] at ``positions`` -> the same behind the layer; all look at everything.

        ``context`` [m - n, hidden] are the target's features at positions 0 and on.
        """
        h = self.norm(x, "input_layernorm.weight")
        before = torch.arange(len(context))
        k = torch.cat((self.keys(context, before), self.keys(h, positions)))
        v = torch.cat((self.values(context), self.values(h)))
        x = x + self.norm(self.attend(self.queries(h, positions), k, v), "post_attention_layernorm.weight")
        out = self.feed_forward(self.norm(x, "pre_feedforward_layernorm.weight"))
        return (x + self.norm(out, "post_feedforward_layernorm.weight")) * self.weight("layer_scalar")

    def weight(self, name: str) -> torch.Tensor:
        return self.weights[f"layers.{self.index}.{name}"]

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, self.weight(name), self.sizes.eps)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return self.weights.linear(x, f"layers.{self.index}.{name}.weight")

    def queries(self, h: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, heads, d]: projected, normed per head, turned."""
        q = self.linear(h, "self_attn.q_proj").view(len(h), self.sizes.heads, self.sizes.head_dim)
        return self.turn(self.norm(q, "self_attn.q_norm.weight"), positions)

    def keys(self, h: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, kv, d], as queries."""
        return self.turn(self.norm(self.projected(h, "k_proj"), "self_attn.k_norm.weight"), positions)

    def values(self, h: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, kv, d]: projected, normed without weights."""
        v = self.projected(h, "k_proj" if self.facts.key_is_value else "v_proj")
        return rms_norm(v, torch.ones(self.sizes.head_dim, dtype=v.dtype), self.sizes.eps)

    def projected(self, h: torch.Tensor, name: str) -> torch.Tensor:
        return self.linear(h, f"self_attn.{name}").view(len(h), self.sizes.kv, self.sizes.head_dim)

    def turn(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """RoPE of the first pairs of ``x`` [n, heads, d], entries i and i + d/2; the others stand still."""
        by = angles(positions, self.sizes.head_dim // 2, self.sizes.theta, float32=self.sizes.float32_angles)
        by[:, self.facts.turning_pairs :] = 0
        return turn(x, by)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """[n, heads, d] queries over [m, kv, d] keys and values -> [n, hidden]."""
        group = self.sizes.heads // self.sizes.kv
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        shares = torch.einsum("nhd,mhd->hnm", q, k).softmax(-1)
        return self.linear(torch.einsum("hnm,mhd->nhd", shares, v).flatten(1), "self_attn.o_proj")

    def feed_forward(self, h: torch.Tensor) -> torch.Tensor:
        gate = gelu(self.linear(h, "mlp.gate_proj"), table=self.table_gelu)
        return self.linear(gate * self.linear(h, "mlp.up_proj"), "mlp.down_proj")


class Gemma4Stack:
    def __init__(self, facts: Facts, own: Gemma4Facts, weights: Weights, sizes: Sizes, table_gelu: bool) -> None:
        self._facts, self._weights = facts, weights
        self._layers = [Gemma4Layer(weights, i, sizes, own, table_gelu) for i in range(facts.n_layer)]

    def __call__(self, past: torch.Tensor, anchor: int, experts: torch.Tensor | None = None) -> States:  # noqa: ARG002
        facts, weights = self._facts, self._weights
        context = rms_norm(weights.linear(past, "fc.weight"), weights["hidden_norm.weight"], facts.rms_norm_eps)
        here = len(past) + torch.arange(facts.slots)
        x = block_rows(facts, weights, anchor)
        for layer in self._layers:
            x = layer(x, here, context)
        final = rms_norm(x, weights["norm.weight"], facts.rms_norm_eps)
        return States(final, final)


def gelu(x: torch.Tensor, *, table: bool) -> torch.Tensor:
    """GELU by its tanh formula (Hendrycks and Gimpel 2016).

    With ``table`` as ggml looks it up on a CPU: a float16 for each float16, between -10 and 10.
    """
    if not table:
        return functional.gelu(x, approximate="tanh")
    found = functional.gelu(x.to(torch.float16).to(torch.float32), approximate="tanh").to(torch.float16).to(x.dtype)
    return torch.where(x.abs() < TABLE_END, found, x.clamp(min=0))


def gemma4_layer_shapes(n_layer: int, sizes: Sizes, own: Gemma4Facts, names: Collection[str]) -> dict[str, Shape]:
    """The tensors of all layers; ends behind the first layer that is not among the ``names``."""
    q, k = sizes.heads * sizes.head_dim, sizes.kv * sizes.head_dim
    layer: dict[str, Shape] = {
        "input_layernorm.weight": (sizes.hidden,),
        "self_attn.q_proj.weight": (q, sizes.hidden),
        "self_attn.k_proj.weight": (k, sizes.hidden),
        "self_attn.o_proj.weight": (sizes.hidden, q),
        "self_attn.q_norm.weight": (sizes.head_dim,),
        "self_attn.k_norm.weight": (sizes.head_dim,),
        "post_attention_layernorm.weight": (sizes.hidden,),
        "pre_feedforward_layernorm.weight": (sizes.hidden,),
        "mlp.gate_proj.weight": (sizes.intermediate, sizes.hidden),
        "mlp.up_proj.weight": (sizes.intermediate, sizes.hidden),
        "mlp.down_proj.weight": (sizes.hidden, sizes.intermediate),
        "post_feedforward_layernorm.weight": (sizes.hidden,),
        "layer_scalar": (1,),
    }
    if not own.key_is_value:
        layer["self_attn.v_proj.weight"] = (k, sizes.hidden)
    return in_all_layers(layer, n_layer, names)
