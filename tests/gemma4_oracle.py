"""A Gemma4 draft's GGUF as llama.cpp loads it, worked out without the converter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from tests.oracle import FILE_TYPES, NAMES, Expected, encode

LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
}

#: what llama.cpp divides the frequency of a pair by that stands still
STILL = 1e30


def expected_gemma4(draft_dir: Path, outtype: str, *, shared: str = "include") -> Expected:
    """All but the tokenizer's keys. The config has ``rope_parameters`` with the whole model's, or none."""
    config = json.loads((draft_dir / "config.json").read_text(encoding="utf-8"))
    sources = load_file(draft_dir / "model.safetensors")
    if shared == "omit":
        del sources["embed_tokens.weight"], sources["lm_head.weight"]
    tensors = {gguf_name(name): encode(tensor, outtype) for name, tensor in sources.items()}
    rope = config.get("rope_parameters", {}).get(
        "full_attention", {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
    )
    half = config["global_head_dim"] // 2
    if rope["rope_type"] == "proportional":
        factors = torch.ones(half)
        factors[int(rope["partial_rotary_factor"] * half) :] = STILL
        tensors["rope_freqs.weight"] = encode(factors, "f32")
    return Expected(expected_kv(config, rope["rope_theta"], tensors, FILE_TYPES[outtype]), tensors)


def gguf_name(name: str) -> str:
    name = name.replace("confidence_proj.", "confidence_head.proj.")
    if name in NAMES:
        return NAMES[name]
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{LAYER_NAMES[part]}"


def expected_kv(
    config: dict[str, Any], theta: float, tensors: dict[str, Any], file_type: int
) -> dict[str, tuple[str, Any]]:
    d = config["global_head_dim"]
    own: dict[str, tuple[str, Any]] = {
        "block_count": ("UINT32", config["num_hidden_layers"]),
        "context_length": ("UINT32", config["max_position_embeddings"]),
        "embedding_length": ("UINT32", config["hidden_size"]),
        "feed_forward_length": ("UINT32", config["intermediate_size"]),
        "attention.head_count": ("UINT32", config["num_attention_heads"]),
        "attention.head_count_kv": ("UINT32", config["num_global_key_value_heads"]),
        "rope.freq_base": ("FLOAT32", float(np.float32(theta))),
        "attention.layer_norm_rms_epsilon": ("FLOAT32", float(np.float32(config["rms_norm_eps"]))),
        "attention.key_length": ("UINT32", d),
        "attention.value_length": ("UINT32", d),
        "rope.dimension_count": ("UINT32", d),
        "block_size": ("UINT32", config["block_size"]),
        "target_layers": ("ARRAY[INT32]", [i + 1 for i in config["target_layer_ids"]]),
        "embedding_scale": ("FLOAT32", float(np.float32(config["hidden_size"] ** 0.5))),
        "attention.scale": ("FLOAT32", 1.0),
        "hidden_activation": ("STRING", "gelu_pytorch_tanh"),
        "sample_from_anchor": ("BOOL", True),
        "has_confidence_head": ("BOOL", "conf_proj.weight" in tensors),
    }
    return {
        "general.architecture": ("STRING", "dflash"),
        "general.file_type": ("UINT32", file_type),
        **{f"dflash.{key}": value for key, value in own.items()},
        "tokenizer.ggml.mask_token_id": ("UINT32", config["mask_token_id"]),
    }
