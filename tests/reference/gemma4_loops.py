"""A Gemma4 block worked out in loops over Python's floats, from a checkpoint's arrays."""

from __future__ import annotations

from math import cos, exp, pi, sin, sqrt, tanh
from typing import Any

import numpy as np

Vector = list[float]
Tensors = dict[str, np.ndarray[Any, Any]]


def times(matrix: np.ndarray[Any, Any], vector: Vector) -> Vector:
    return [sum(float(a) * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def norm(vector: Vector, eps: float, weight: Any = None) -> Vector:
    root = sqrt(sum(x * x for x in vector) / len(vector) + eps)
    weights = [1.0] * len(vector) if weight is None else [float(w) for w in weight]
    return [x / root * w for x, w in zip(vector, weights, strict=True)]


def turn(head: Vector, position: int, turning: int, theta: float) -> Vector:
    """Pairs (i, i + d/2) below ``turning``."""
    d = len(head)
    out = list(head)
    for i in range(turning):
        angle = position / theta ** (2 * i / d)
        a, b = head[i], head[i + d // 2]
        out[i], out[i + d // 2] = a * cos(angle) - b * sin(angle), b * cos(angle) + a * sin(angle)
    return out


def gelu(x: float) -> float:
    return x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))


def heads_of(vector: Vector, d: int) -> list[Vector]:
    return [vector[i : i + d] for i in range(0, len(vector), d)]


def block_logits(
    w: Tensors,
    config: dict[str, Any],
    features: list[Vector],
    anchor: int,
    chosen: list[int],
    turning: int,
    theta: float,
) -> tuple[list[Vector], list[float]]:
    """Logits with the Markov bias and confidences of all slots, anchor first."""
    eps, d, hidden = config["rms_norm_eps"], config["global_head_dim"], config["hidden_size"]
    cap = config.get("final_logit_softcapping")
    ids = [anchor] + [config["mask_token_id"]] * (config["block_size"] - 1)
    states = [[float(x) * sqrt(hidden) for x in w["embed_tokens.weight"][i]] for i in ids]
    context = [norm(times(w["fc.weight"], row), eps, w["hidden_norm.weight"]) for row in features]
    for number in range(config["num_hidden_layers"]):
        own = {name.split(".", 2)[2]: x for name, x in w.items() if name.startswith(f"layers.{number}.")}
        states = layer(own, states, context, eps, d, turning, theta)
    logits, confidences, previous = [], [], anchor
    for state, token in zip(states, chosen, strict=True):
        final = norm(state, eps, w["norm.weight"])
        row = times(w["lm_head.weight"], final)
        row = row if cap is None else [cap * tanh(x / cap) for x in row]
        markov = [float(x) for x in w["markov_head.markov_w1.weight"][previous]]
        bias = times(w["markov_head.markov_w2.weight"], markov)
        logits.append([a + b for a, b in zip(row, bias, strict=True)])
        score = times(w["confidence_head.proj.weight"], final + markov)[0] + float(w["confidence_head.proj.bias"][0])
        confidences.append(1 / (1 + exp(-score)))
        previous = token
    return logits, confidences


def layer(
    w: Tensors, states: list[Vector], context: list[Vector], eps: float, d: int, turning: int, theta: float
) -> list[Vector]:
    seen = context + [norm(x, eps, w["input_layernorm.weight"]) for x in states]
    keys, values = [], []
    for position, h in enumerate(seen):
        k = heads_of(times(w["self_attn.k_proj.weight"], h), d)
        v = heads_of(times(w["self_attn.v_proj.weight"], h), d) if "self_attn.v_proj.weight" in w else k
        keys.append([turn(norm(head, eps, w["self_attn.k_norm.weight"]), position, turning, theta) for head in k])
        values.append([norm(head, eps) for head in v])
    out = []
    for slot, x in enumerate(states):
        position = len(context) + slot
        queries = heads_of(times(w["self_attn.q_proj.weight"], seen[position]), d)
        mixed: Vector = []
        for index, head in enumerate(queries):
            q = turn(norm(head, eps, w["self_attn.q_norm.weight"]), position, turning, theta)
            kv = index * len(keys[0]) // len(queries)
            shares = [exp(sum(a * b for a, b in zip(q, key[kv], strict=True))) for key in keys]
            for i in range(d):
                mixed.append(sum(s * value[kv][i] for s, value in zip(shares, values, strict=True)) / sum(shares))
        attended = norm(times(w["self_attn.o_proj.weight"], mixed), eps, w["post_attention_layernorm.weight"])
        y = [a + b for a, b in zip(x, attended, strict=True)]
        h = norm(y, eps, w["pre_feedforward_layernorm.weight"])
        gate, up = times(w["mlp.gate_proj.weight"], h), times(w["mlp.up_proj.weight"], h)
        down = times(w["mlp.down_proj.weight"], [gelu(g) * u for g, u in zip(gate, up, strict=True)])
        fed = norm(down, eps, w["post_feedforward_layernorm.weight"])
        out.append([(a + b) * float(w["layer_scalar"][0]) for a, b in zip(y, fed, strict=True)])
    return out
