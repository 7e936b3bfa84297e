"""A draft and a target small enough to be worked out in loops over Python's floats, and those loops.

One layer, one head of two numbers (so RoPE turns one pair by the position itself, whatever its base).
"""

from __future__ import annotations

import json
import random
from math import cos, exp, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

Vector = list[float]
Matrix = list[Vector]
Tensors = dict[str, np.ndarray[Any, Any]]

HIDDEN, HEAD, FF, VOCAB, RANK, BLOCK, TAPS, MASK, EPS = 4, 2, 3, 6, 2, 3, 2, 5, 0.01

LAYER = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.q_proj.weight": (HEAD, HIDDEN),
    "self_attn.k_proj.weight": (HEAD, HIDDEN),
    "self_attn.v_proj.weight": (HEAD, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, HEAD),
    "self_attn.q_norm.weight": (HEAD,),
    "self_attn.k_norm.weight": (HEAD,),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.gate_proj.weight": (FF, HIDDEN),
    "mlp.up_proj.weight": (FF, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, FF),
}
TABLES = {"embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN), "norm.weight": (HIDDEN,)}
CONFIG = {
    "hidden_size": HIDDEN,
    "intermediate_size": FF,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": HEAD,
    "rms_norm_eps": EPS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}


def draw(shapes: dict[str, tuple[int, ...]], seed: int = 1) -> Tensors:
    """Two decimals each, so that they could be written down."""
    rng = random.Random(seed)
    return {
        name: np.array([round(rng.gauss(0, 1), 2) for _ in range(int(np.prod(shape)))]).reshape(shape)
        for name, shape in shapes.items()
    }


def write(directory: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, directory / "model.safetensors")
    return directory


def draft(confidence: str = "with_markov", rank: int = RANK, **changes: Any) -> tuple[dict[str, Any], Tensors]:
    """Config and tensors. ``confidence``: "with_markov", "hidden_only" or "none"; ``changes`` to the config."""
    shapes = TABLES | {"fc.weight": (HIDDEN, TAPS * HIDDEN), "hidden_norm.weight": (HIDDEN,)}
    shapes |= {f"layers.0.{name}": shape for name, shape in LAYER.items()}
    if rank:
        shapes |= {f"markov_head.markov_{name}.weight": (VOCAB, rank) for name in ("w1", "w2")}
    if confidence != "none":
        columns = HIDDEN + (rank if confidence == "with_markov" else 0)
        shapes |= {"confidence_head.proj.weight": (1, columns), "confidence_head.proj.bias": (1,)}
    config = {
        **CONFIG,
        "architectures": ["Qwen3DSparkModel"],
        "block_size": BLOCK,
        "mask_token_id": MASK,
        "target_layer_ids": [-1, 0],
        "num_target_layers": 1,
        "markov_rank": rank,
        **changes,
    }
    return config, draw(shapes)


def target() -> tuple[dict[str, Any], Tensors]:
    shapes = {f"model.{name}": shape for name, shape in TABLES.items() if name != "lm_head.weight"}
    shapes |= {"lm_head.weight": TABLES["lm_head.weight"]}
    shapes |= {f"model.layers.0.{name}": shape for name, shape in LAYER.items()}
    return {**CONFIG, "architectures": ["Qwen3ForCausalLM"]}, draw(shapes, seed=2)


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(matrix: Any, vector: Vector) -> Vector:
    return [dot(list(row), vector) for row in matrix]


def plus(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def norm(vector: Vector, weight: Any) -> Vector:
    root = sqrt(dot(vector, vector) / len(vector) + EPS)
    return [x / root * w for x, w in zip(vector, weight, strict=True)]


def turn(pair: Vector, position: int) -> Vector:
    a, b = pair
    return [a * cos(position) - b * sin(position), a * sin(position) + b * cos(position)]


def attention(w: Tensors, name: str, x: Vector) -> Vector:
    """A projection of the attention, with its bias if it has one."""
    out = times(w[f"self_attn.{name}_proj.weight"], x)
    return plus(out, list(w.get(f"self_attn.{name}_proj.bias", np.zeros(len(out)))))


def key(w: Tensors, h: Vector, position: int, name: str = "k") -> Vector:
    return turn(norm(attention(w, name, h), w[f"self_attn.{name}_norm.weight"]), position)


def layer(w: Tensors, x: Vector, position: int, keys: Matrix, values: Matrix) -> Vector:
    """One token through the layer ``w``, seeing ``keys`` and ``values``."""
    query = key(w, norm(x, w["input_layernorm.weight"]), position, "q")
    weights = [exp(dot(query, k) / sqrt(HEAD)) for k in keys]
    mixed = [sum(p * v[i] for p, v in zip(weights, values, strict=True)) / sum(weights) for i in range(HEAD)]
    x = plus(x, attention(w, "o", mixed))
    h = norm(x, w["post_attention_layernorm.weight"])
    gate, up = times(w["mlp.gate_proj.weight"], h), times(w["mlp.up_proj.weight"], h)
    return plus(x, times(w["mlp.down_proj.weight"], [g / (1 + exp(-g)) * u for g, u in zip(gate, up, strict=True)]))


def of_layer(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def block_states(w: Tensors, features: Matrix, anchor: int) -> Matrix:
    own = of_layer(w, "layers.0.")
    seen = [norm(times(w["fc.weight"], row), w["hidden_norm.weight"]) for row in features]
    states = [list(w["embed_tokens.weight"][token]) for token in [anchor] + [MASK] * (BLOCK - 1)]
    seen += [norm(x, own["input_layernorm.weight"]) for x in states]
    keys = [key(own, h, position) for position, h in enumerate(seen)]
    values = [attention(own, "v", h) for h in seen]
    return [norm(layer(own, x, len(features) + slot, keys, values), w["norm.weight"]) for slot, x in enumerate(states)]


def target_streams(w: Tensors, tokens: list[int]) -> tuple[Matrix, Matrix]:
    """The residual streams before and behind the layer."""
    own = of_layer(w, "model.layers.0.")
    before = [list(w["model.embed_tokens.weight"][token]) for token in tokens]
    seen = [norm(x, own["input_layernorm.weight"]) for x in before]
    keys = [key(own, h, position) for position, h in enumerate(seen)]
    values = [attention(own, "v", h) for h in seen]
    return before, [layer(own, x, i, keys[: i + 1], values[: i + 1]) for i, x in enumerate(before)]
