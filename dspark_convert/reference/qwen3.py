"""The layer of Qwen3, which both the target and the draft are built of.

Shapes: n tokens, hidden, heads, kv (key/value heads), d (numbers a head). No batch dimension.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from dspark_convert.reference.config import Config
from dspark_convert.reference.rotation import Rotation
from dspark_convert.reference.weights import SINKS, Shape, Weights, columns


@dataclass(frozen=True)
class Sizes:
    """``rotation``: None turns whole heads by ``theta``. ``has_sinks``: see ``Layer.attend``."""

    hidden: int
    intermediate: int
    heads: int
    kv: int
    head_dim: int
    eps: float
    theta: float
    float32_angles: bool = False
    rotation: Rotation | None = None
    value_scale: float = 1.0
    has_sinks: bool = False


def head_dim(config: Config, shapes: Mapping[str, Shape]) -> int:
    """The config's, else the length of the query norm's weight: transformers' default has changed over time."""
    return config.integer("head_dim", default=columns(shapes, "layers.0.self_attn.q_norm.weight") or None)


def has_biases(config: Config, shapes: Mapping[str, Shape]) -> bool:
    """Whether the attention's projections have biases: as the config says, or as the tensors show."""
    return bool(config.flag("attention_bias")) or "layers.0.self_attn.q_proj.bias" in shapes


def layer_shapes(n_layer: int, sizes: Sizes, biases: bool, names: Collection[str]) -> dict[str, Shape]:
    """The tensors of all layers; ``biases``: of the attention's projections.

    Ends behind the first layer that is not among the ``names``: a config may ask for any number of them.
    """
    q, k = sizes.heads * sizes.head_dim, sizes.kv * sizes.head_dim
    layer: dict[str, Shape] = {
        "input_layernorm.weight": (sizes.hidden,),
        "self_attn.q_proj.weight": (q, sizes.hidden),
        "self_attn.k_proj.weight": (k, sizes.hidden),
        "self_attn.v_proj.weight": (k, sizes.hidden),
        "self_attn.o_proj.weight": (sizes.hidden, q),
        "self_attn.q_norm.weight": (sizes.head_dim,),
        "self_attn.k_norm.weight": (sizes.head_dim,),
        "post_attention_layernorm.weight": (sizes.hidden,),
        "mlp.gate_proj.weight": (sizes.intermediate, sizes.hidden),
        "mlp.up_proj.weight": (sizes.intermediate, sizes.hidden),
        "mlp.down_proj.weight": (sizes.hidden, sizes.intermediate),
    }
    if biases:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            layer[f"self_attn.{name}.bias"] = layer[f"self_attn.{name}.weight"][:1]
    if sizes.has_sinks:
        layer[SINKS] = (sizes.heads,)
    return in_all_layers(layer, n_layer, names)


def in_all_layers(layer: Mapping[str, Shape], n_layer: int, names: Collection[str]) -> dict[str, Shape]:
    """The tensors of one layer for each; ends behind the first that is not among the ``names``."""
    shapes: dict[str, Shape] = {}
    for index in range(n_layer):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
        if f"layers.{index}.input_layernorm.weight" not in names:
            break
    return shapes


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension (Zhang and Sennrich 2019)."""
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class Layer:
    """One layer's arithmetic over the weights ``layers.{index}.*``."""

    def __init__(self, weights: Weights, index: int, sizes: Sizes) -> None:
        self._weights, self._prefix, self._sizes = weights, f"layers.{index}.", sizes

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, self._weights[f"{self._prefix}{name}.weight"], self._sizes.eps)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        stem = f"{self._prefix}{name}"
        out, bias = self._weights.linear(x, f"{stem}.weight"), self._weights.get(f"{stem}.bias")
        return out if bias is None else out + bias

    def queries(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[n, hidden] normed states -> [n, heads, d]: projected, normed per head, rotated."""
        return self._heads(x, positions, "q", self._sizes.heads)

    def keys(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, kv, d], as queries."""
        return self._heads(x, positions, "k", self._sizes.kv)

    def _heads(self, x: torch.Tensor, positions: torch.Tensor, which: str, count: int) -> torch.Tensor:
        split = self.linear(x, f"self_attn.{which}_proj").view(len(x), count, self._sizes.head_dim)
        rotation = self._sizes.rotation or Rotation(self._sizes.theta, self._sizes.head_dim)
        normed = self.norm(split, f"self_attn.{which}_norm")
        return rotation.turn(normed, positions, float32=self._sizes.float32_angles)

    def values(self, x: torch.Tensor) -> torch.Tensor:
        """[n, hidden] -> [n, kv, d]: projected, and scaled if the draft does so."""
        values = self.linear(x, "self_attn.v_proj") * self._sizes.value_scale
        return values.view(len(x), self._sizes.kv, self._sizes.head_dim)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sees: torch.Tensor | None) -> torch.Tensor:
        """[n, heads, d] queries over [m, kv, d] keys and values -> [n, hidden].

        Query head h looks at key head h // (heads / kv). ``sees`` [n, m]: which keys a query may look at. A head's
        sink takes a share of the attention as the score of a key would, and gives nothing.
        """
        group = self._sizes.heads // self._sizes.kv
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("nhd,mhd->hnm", q, k) / self._sizes.head_dim**0.5
        if sees is not None:
            scores = scores.masked_fill(~sees, -torch.inf)
        if self._sizes.has_sinks:
            sinks = self._weights[f"{self._prefix}{SINKS}"].view(-1, 1, 1).expand(-1, len(q), 1)
            scores = torch.cat((scores, sinks), -1)
        mixed = torch.einsum("hnm,mhd->nhd", scores.softmax(-1)[..., : len(k)], v)
        return self.linear(mixed.flatten(1), "self_attn.o_proj")

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        """SwiGLU with its norm before it and the residual around it."""
        return x + self.gated(self.norm(x, "post_attention_layernorm"))

    def gated(self, h: torch.Tensor) -> torch.Tensor:
        """SwiGLU (Shazeer 2020)."""
        return self.linear(
            functional.silu(self.linear(h, "mlp.gate_proj")) * self.linear(h, "mlp.up_proj"), "mlp.down_proj"
        )
