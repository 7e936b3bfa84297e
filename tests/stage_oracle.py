"""What a conversion of a DeepSeek-V4 draft has to give, worked out without the converter.

Names, packing and tile are the fixtures' own; FP4 is repacked by them, the rest decoded and rounded by torch
and the ``gguf`` package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from fixtures.deepseek4_gguf import EXPERT_NAMES, LAYER_NAMES, load_tensors, mxfp4
from fixtures.deepseek4_packing import unpack_fp8
from tests.oracle import Expected

#: without the stage that holds it
HEAD_NAMES = {
    "main_proj.weight": "fc.weight",
    "main_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "hc_head_fn": "output_hc_fn.weight",
    "hc_head_base": "output_hc_base.weight",
    "hc_head_scale": "output_hc_scale.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
}


def expected(directory: Path, outtype: str = "auto") -> Expected:
    """``outtype``: "auto" (FP8 as Q8_0), "bf16" or "f32", of all but the experts, which stay MXFP4."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    sources = load_tensors(directory)
    stages = 1 + max(int(name.split(".")[1]) for name in sources if name.startswith("mtp."))
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
    for i in range(stages):
        own = {
            name.removeprefix(f"mtp.{i}."): tensor for name, tensor in sources.items() if name.startswith(f"mtp.{i}.")
        }
        for name, gguf_name in EXPERT_NAMES.items():
            parts = [f"ffn.experts.{e}.{name}" for e in range(config["n_routed_experts"])]
            blocks = torch.stack([mxfp4(own[f"{part}.weight"], own[f"{part}.scale"]) for part in parts])
            count, rows, width = blocks.shape
            tensors[f"blk.{i}.{gguf_name}"] = ("MXFP4", (width // 17 * 32, rows, count), blocks.numpy().tobytes())
        names = {name: f"blk.{i}.{gguf_name}" for name, gguf_name in LAYER_NAMES.items()} | HEAD_NAMES
        tensors |= {gguf_name: encode(own, name, config, outtype) for name, gguf_name in names.items() if name in own}
    return Expected(expected_kv(config, stages), tensors)


def encode(
    own: Mapping[str, torch.Tensor], name: str, config: dict[str, Any], outtype: str
) -> tuple[str, tuple[int, ...], bytes]:
    tensor = own[name]
    shape = tuple(reversed(tensor.shape))
    packed = tensor.dtype == torch.float8_e4m3fn
    if packed:
        tile = config["quantization_config"]["weight_block_size"][0]
        tensor = unpack_fp8(tensor, own[name.removesuffix("weight") + "scale"], tile)
    if len(shape) == 1 or (tensor.dtype == torch.float32 and not packed) or outtype == "f32":
        return "F32", shape, tensor.float().numpy().tobytes()
    if packed and outtype == "auto":
        blocks = gguf.quants.quantize(tensor.numpy(), gguf.GGMLQuantizationType.Q8_0)
        return "Q8_0", shape, blocks.tobytes()
    return "BF16", shape, tensor.to(torch.bfloat16).view(torch.uint8).numpy().tobytes()


def expected_kv(config: dict[str, Any], stages: int) -> dict[str, tuple[str, Any]]:
    integers = {
        "block_count": stages,
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": 1,
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.q_lora_rank": config["q_lora_rank"],
        "attention.sliding_window": config["sliding_window"],
        "attention.output_group_count": config["o_groups"],
        "attention.output_lora_rank": config["o_lora_rank"],
        "expert_count": config["n_routed_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_shared_count": config["n_shared_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_gating_func": 4,
        "rope.dimension_count": config["qk_rope_head_dim"],
        "hyper_connection.count": config["hc_mult"],
        "hyper_connection.sinkhorn_iterations": config["hc_sinkhorn_iters"],
        "block_size": config["dspark_block_size"],
    }
    floats = {
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "expert_weights_scale": config["routed_scaling_factor"],
        "rope.freq_base": config["rope_theta"],
        "hyper_connection.epsilon": config["hc_eps"],
    }
    flags = {"expert_weights_norm": config["norm_topk_prob"], "sample_from_anchor": True, "has_confidence_head": True}
    taps = [i + 1 for i in config["dspark_target_layer_ids"]]
    clamps = [float(config["swiglu_limit"])] * stages
    return {
        "general.architecture": ("STRING", "dflash"),
        "general.file_type": ("UINT32", 38),
        **{f"dflash.{key}": ("UINT32", value) for key, value in integers.items()},
        **{f"dflash.{key}": ("FLOAT32", float(np.float32(value))) for key, value in floats.items()},
        **{f"dflash.{key}": ("BOOL", value) for key, value in flags.items()},
        "dflash.swiglu_clamp_exp": ("ARRAY[FLOAT32]", clamps),
        "dflash.swiglu_clamp_shexp": ("ARRAY[FLOAT32]", clamps),
        "dflash.attention.compress_ratios": ("ARRAY[INT32]", [0] * stages),
        "dflash.target_layers": ("ARRAY[INT32]", taps),
        "tokenizer.ggml.mask_token_id": ("UINT32", config["dspark_noise_token_id"]),
    }
