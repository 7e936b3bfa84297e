"""A DFlash2 draft's GGUF as llama.cpp loads it, worked out without the converter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from tests.oracle import FILE_TYPES, LAYER_NAMES, NAMES, Expected, encode

CONV_NAMES = {
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
}
SELECTOR_NAMES = {
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
    "candidate_selector.hidden_projection.weight": "selector_hidden.weight",
}
#: of dflash_config -> the runtime's key
SCALES = {
    "output_multiplier": "logit_scale",
    "final_logit_softcapping": "final_logit_softcapping",
    "input_embedding_scale": "embedding_scale",
}


def expected_dflash2(draft_dir: Path, outtype: str) -> Expected:
    """All but the tokenizer's keys. The kernels' tables are F32 in every file."""
    config = json.loads((draft_dir / "config.json").read_text(encoding="utf-8"))
    tensors = {
        gguf_name(name): encode(tensor, "f32" if name.endswith("base_kernel") else outtype)
        for name, tensor in load_file(draft_dir / "model.safetensors").items()
    }
    return Expected(expected_kv(config, FILE_TYPES[outtype]), tensors)


def gguf_name(name: str) -> str:
    if name in NAMES | SELECTOR_NAMES:
        return (NAMES | SELECTOR_NAMES)[name]
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{CONV_NAMES.get(part) or LAYER_NAMES[part.removesuffix('.weight')] + '.weight'}"


def expected_kv(config: dict[str, Any], file_type: int) -> dict[str, tuple[str, Any]]:
    d, dflash = config["head_dim"], config["dflash_config"]
    own: dict[str, tuple[str, Any]] = {
        "block_count": ("UINT32", config["num_hidden_layers"]),
        "context_length": ("UINT32", config["max_position_embeddings"]),
        "embedding_length": ("UINT32", config["hidden_size"]),
        "feed_forward_length": ("UINT32", config["intermediate_size"]),
        "attention.head_count": ("UINT32", config["num_attention_heads"]),
        "attention.head_count_kv": ("UINT32", config["num_key_value_heads"]),
        "attention.causal": ("BOOL", config["is_causal"]),
        "rope.freq_base": ("FLOAT32", float(np.float32(config["rope_parameters"]["rope_theta"]))),
        "attention.layer_norm_rms_epsilon": ("FLOAT32", float(np.float32(config["rms_norm_eps"]))),
        "attention.key_length": ("UINT32", d),
        "attention.value_length": ("UINT32", d),
    }
    own |= {
        key: ("UINT32", dflash[key])
        for key in ("block_size", "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
    }
    own |= {key: ("FLOAT32", float(np.float32(dflash[name]))) for name, key in SCALES.items() if name in dflash}
    own |= {
        "target_layers": ("ARRAY[INT32]", [i + 1 for i in dflash["target_layer_ids"]]),
        "attention.sliding_window": ("UINT32", config["sliding_window"]),
        "attention.sliding_window_pattern": (
            "ARRAY[BOOL]",
            [kind == "sliding_attention" for kind in config["layer_types"]],
        ),
    }
    return {
        "general.architecture": ("STRING", "dflash"),
        "general.file_type": ("UINT32", file_type),
        **{f"dflash.{key}": value for key, value in own.items()},
        "tokenizer.ggml.mask_token_id": ("UINT32", dflash["mask_token_id"]),
    }
