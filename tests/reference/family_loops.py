"""A block of a draft of Qwen3 layers in loops over slots, heads and keys, from what a family means, stated by hand.

Matrices are multiplied by numpy in float64; all else is written out. Nothing here is shared with the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, cos, exp, floor, log, pi, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from fixtures.families.nvfp4 import unpack

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Meaning:
    """``windows`` and ``causal``: one for each layer. ``yarn``: the factor and the original context."""

    first_slot: int
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    from_anchor: bool = False
    dims: int = 32
    neighbours: bool = False
    yarn: tuple[float, int] | None = None
    value_scale: float = 1.0
    eps: float = 1e-6
    theta: float = 10000.0
    heads: int = 4
    kv: int = 2
    mask: int = 507


def read(directory: Path, embed: Array, head: Array) -> dict[str, Array]:
    """The checkpoint's tensors with DeepSpec's names; ``embed`` and ``head`` where it has none."""
    (file,) = directory.glob("*.safetensors")
    stored = load_file(file)
    w = {"embed_tokens.weight": embed, "lm_head.weight": head}
    for name, tensor in stored.items():
        plain = name.replace("logit_head.", "").replace("encoder.fc.", "fc.")
        plain = plain.replace("encoder.output_norm_enc.", "hidden_norm.")
        whole = unpack(name.removesuffix(".weight"), stored) if tensor.dtype == torch.uint8 else tensor.double()
        w[plain] = whole.numpy()
    return w


def norm(x: Array, weight: Array, eps: float) -> Array:
    return np.array([value / sqrt(sum(v * v for v in x) / len(x) + eps) for value in x]) * weight


def angle(meaning: Meaning, pair: int, position: int) -> float:
    dims, own = meaning.dims, position * meaning.theta ** (-2 * pair / meaning.dims)
    if meaning.yarn is None:
        return own
    factor, context = meaning.yarn
    # the pair that turns so many times within the original context
    edges = [dims * log(context / (turns * 2 * pi)) / (2 * log(meaning.theta)) for turns in (32, 1)]
    low, high = max(floor(edges[0]), 0), min(ceil(edges[1]), dims - 1)
    slow = min(max((pair - low) / (high - low), 0.0), 1.0)
    return own * (1 - slow) + own / factor * slow


def turned(meaning: Meaning, x: Array, position: int) -> Array:
    out, half = x.copy(), meaning.dims // 2
    size = 1.0 if meaning.yarn is None else 0.1 * log(meaning.yarn[0]) + 1
    for pair in range(half):
        i, j = (2 * pair, 2 * pair + 1) if meaning.neighbours else (pair, pair + half)
        a = angle(meaning, pair, position)
        out[i] = size * (x[i] * cos(a) - x[j] * sin(a))
        out[j] = size * (x[j] * cos(a) + x[i] * sin(a))
    return out


def sees(meaning: Meaning, layer: int, anchor: int, query: int, key: int) -> bool:
    window = meaning.windows[layer]
    if window is not None and meaning.from_anchor and key < anchor - window:
        return False
    if window is not None and not meaning.from_anchor and query - key >= window:
        return False
    return key <= query or not meaning.causal[layer]


class Draft:
    def __init__(self, meaning: Meaning, w: dict[str, Array]) -> None:
        self.meaning, self.w = meaning, w

    def project(self, layer: int, which: str, h: Array) -> Array:
        name = f"layers.{layer}.self_attn.{which}_proj"
        return self.w[f"{name}.weight"] @ h + self.w.get(f"{name}.bias", np.zeros(1))

    def split(self, layer: int, which: str, h: Array, position: int) -> list[Array]:
        """Queries or keys of all heads."""
        weight = self.w[f"layers.{layer}.self_attn.{which}_norm.weight"]
        parts = self.project(layer, which, h).reshape(-1, len(weight))
        return [turned(self.meaning, norm(part, weight, self.meaning.eps), position) for part in parts]

    def attention(self, layer: int, inputs: list[Array], anchor: int, query: int) -> Array:
        """Of the slot at position ``query``; ``inputs``: of all positions."""
        m, out = self.meaning, []
        queries = self.split(layer, "q", inputs[query], query)
        for head in range(m.heads):
            own = head // (m.heads // m.kv)
            shares, total = [], 0.0
            for key in range(len(inputs)):
                if sees(m, layer, anchor, query, key):
                    k = self.keys[layer, key][own]
                    shares.append((key, exp(float(queries[head] @ k) / sqrt(len(k)))))
                    total += shares[-1][1]
            sinks = self.w.get(f"layers.{layer}.self_attn.attention_sink_bias")
            total += 0.0 if sinks is None else exp(float(sinks[head]))
            out.append(sum(share / total * m.value_scale * self.values[layer, key][own] for key, share in shares))
        return self.project(layer, "o", np.concatenate(out))

    def states(self, features: Array, anchor_token: int, block: int, mask_row: Array | None = None) -> list[Array]:
        m, w, anchor = self.meaning, self.w, len(features)
        context = [norm(w["fc.weight"] @ row, w["hidden_norm.weight"], m.eps) for row in features]
        mask = w["embed_tokens.weight"][m.mask] if mask_row is None else mask_row
        x = [w["embed_tokens.weight"][anchor_token]] + [mask] * (block - 1)
        self.keys: dict[tuple[int, int], list[Array]] = {}
        self.values: dict[tuple[int, int], Array] = {}
        for layer in range(len(m.windows)):
            inner = f"layers.{layer}."
            inputs = context + [norm(slot, w[f"{inner}input_layernorm.weight"], m.eps) for slot in x]
            for position, h in enumerate(inputs):
                self.keys[layer, position] = self.split(layer, "k", h, position)
                self.values[layer, position] = self.project(layer, "v", h).reshape(m.kv, -1)
            x = [slot + self.attention(layer, inputs, anchor, anchor + i) for i, slot in enumerate(x)]
            for i, slot in enumerate(x):
                h = norm(slot, w[f"{inner}post_attention_layernorm.weight"], m.eps)
                gate, up = w[f"{inner}mlp.gate_proj.weight"] @ h, w[f"{inner}mlp.up_proj.weight"] @ h
                x[i] = slot + w[f"{inner}mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
        return [norm(slot, w["norm.weight"], m.eps) for slot in x]

    def heads(self, states: list[Array], anchor_token: int, chosen: list[int]) -> tuple[Array, list[float]]:
        """Logits [slots, vocabulary], -inf for what the draft does not know, and the proposing slots' confidences."""
        w, logits, confidence = self.w, [], []
        for slot, state in enumerate(states):
            own = w["lm_head.weight"] @ state
            if slot >= self.meaning.first_slot:
                before = anchor_token if slot == self.meaning.first_slot else chosen[slot - 1]
                seen = state
                if "markov_head.markov_w1.weight" in w:
                    row = w["markov_head.markov_w1.weight"][before]
                    own = own + w["markov_head.markov_w2.weight"] @ row
                    seen = np.concatenate((state, row))
                if "confidence_head.proj.weight" in w:
                    score = w["confidence_head.proj.weight"][0] @ seen + w["confidence_head.proj.bias"][0]
                    confidence.append(1 / (1 + exp(-score)))
            everywhere = np.full(len(w["embed_tokens.weight"]), -np.inf)
            for i, value in enumerate(own):
                everywhere[i + int(w["d2t"][i]) if "d2t" in w else i] = value
            logits.append(everywhere)
        return np.array(logits), confidence
