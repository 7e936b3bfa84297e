"""A DFlash2 block and its lattice worked out in loops over Python's floats, from a checkpoint's arrays."""

from __future__ import annotations

from math import exp, sqrt, tanh
from typing import Any

import numpy as np

from tests.reference.gemma4_loops import Tensors, Vector, heads_of, norm, times, turn


def convolve(states: list[Vector], inputs: list[Vector], w: Tensors, name: str, side: int, group: int) -> list[Vector]:
    """``states`` mixed by the taps that ``inputs`` make.

    The projection's row of a side, a tap and a group of channels is (side · kernel + tap) · groups + group.
    """
    base, projection = w[f"{name}.base_kernel"], w[f"{name}.kernel_projection.weight"]
    kernel, hidden = base.shape[1:]
    out = []
    for slot, x in enumerate(inputs):
        added = times(projection, x)
        row = [0.0] * hidden
        for tap in range(min(kernel, slot + 1)):
            for channel in range(hidden):
                more = added[(side * kernel + tap) * (hidden // group) + channel // group]
                row[channel] += (float(base[side, tap, channel]) + more) * states[slot - tap][channel]
        out.append(row)
    return out


def layer(
    w: Tensors, states: list[Vector], context: list[Vector], config: dict[str, Any], window: int | None
) -> list[Vector]:
    eps, d, theta = config["rms_norm_eps"], config["head_dim"], config["rope_parameters"]["rope_theta"]
    group = config["dflash_config"]["conv_group_size"]
    inputs = [norm(x, eps, w["input_layernorm.weight"]) for x in states]
    mixed = convolve(inputs, inputs, w, "attention_conv", 0, group)
    keys, values = [], []
    for position, h in enumerate(context + mixed):
        heads = heads_of(times(w["self_attn.k_proj.weight"], h), d)
        keys.append([turn(norm(k, eps, w["self_attn.k_norm.weight"]), position, d // 2, theta) for k in heads])
        values.append(heads_of(times(w["self_attn.v_proj.weight"], h), d))
    attended = []
    for slot, h in enumerate(mixed):
        position, row = len(context) + slot, []
        for index, head in enumerate(heads_of(times(w["self_attn.q_proj.weight"], h), d)):
            q = turn(norm(head, eps, w["self_attn.q_norm.weight"]), position, d // 2, theta)
            kv = index * config["num_key_value_heads"] // config["num_attention_heads"]
            shares = [
                exp(sum(a * b for a, b in zip(q, k[kv], strict=True)) / sqrt(d))
                if window is None or position - at < window
                else 0.0
                for at, k in enumerate(keys)
            ]
            for i in range(d):
                row.append(sum(s * v[kv][i] for s, v in zip(shares, values, strict=True)) / sum(shares))
        attended.append(times(w["self_attn.o_proj.weight"], row))
    states = add(states, convolve(attended, inputs, w, "attention_conv", 1, group))
    inputs = [norm(x, eps, w["post_attention_layernorm.weight"]) for x in states]
    fed = []
    for h in convolve(inputs, inputs, w, "mlp_conv", 0, group):
        gate, up = times(w["mlp.gate_proj.weight"], h), times(w["mlp.up_proj.weight"], h)
        fed.append(times(w["mlp.down_proj.weight"], [g / (1 + exp(-g)) * u for g, u in zip(gate, up, strict=True)]))
    return add(states, convolve(fed, inputs, w, "mlp_conv", 1, group))


def add(a: list[Vector], b: list[Vector]) -> list[Vector]:
    return [[x + y for x, y in zip(left, right, strict=True)] for left, right in zip(a, b, strict=True)]


def block_states(
    w: Tensors, config: dict[str, Any], embed: np.ndarray[Any, Any], features: list[Vector], anchor: int
) -> list[Vector]:
    """The final states of all slots."""
    dflash, eps = config["dflash_config"], config["rms_norm_eps"]
    ids = [anchor] + [dflash["mask_token_id"]] * (dflash["block_size"] - 1)
    scale = dflash.get("input_embedding_scale", 1.0)
    states = [[float(x) * scale for x in embed[i]] for i in ids]
    context = [norm(times(w["fc.weight"], row), eps, w["hidden_norm.weight"]) for row in features]
    for number, kind in enumerate(config["layer_types"]):
        own = {name.split(".", 2)[2]: x for name, x in w.items() if name.startswith(f"layers.{number}.")}
        states = layer(own, states, context, config, config["sliding_window"] if kind == "sliding_attention" else None)
    return [norm(x, eps, w["norm.weight"]) for x in states]


def logits_of(state: Vector, head: np.ndarray[Any, Any], dflash: dict[str, Any]) -> Vector:
    row = [x * dflash.get("output_multiplier", 1.0) for x in times(head, state)]
    cap = dflash.get("final_logit_softcapping")
    return row if cap is None else [cap * tanh(x / cap) for x in row]


def walk(w: Tensors, states: list[Vector], logits: list[Vector], anchor: int, top_k: int) -> list[int]:
    """What is drafted: at each slot the best of its ``top_k`` behind the token taken before."""
    path, before = [], anchor
    for state, row in zip(states[1:], logits[1:], strict=True):
        gate = times(w["candidate_selector.hidden_projection.weight"], state)
        best = sorted(range(len(row)), key=lambda i: -row[i])[:top_k]
        scores = {i: row[i] + edge(w, before, i, gate) for i in best}
        before = max(scores, key=lambda i: scores[i])
        path.append(before)
    return path


def edge(w: Tensors, before: int, token: int, gate: Vector) -> float:
    predecessor = w["candidate_selector.predecessor_codebook"][before]
    successor = w["candidate_selector.successor_codebook"][token]
    return sum(float(a) * g * float(b) for a, g, b in zip(predecessor, gate, successor, strict=True))
