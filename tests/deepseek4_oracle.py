"""A DeepSeek-V4 draft's GGUF in the published layout (81 tensors for three stages), written without the converter.

Names and keys are those of published files; packing is the fixtures', Q8_0 and BF16 are the ``gguf`` package's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

from fixtures.deepseek4_gguf import EXPERT_NAMES, LAYER_NAMES, SQRT_SOFTPLUS, load_tensors, mxfp4, plain
from fixtures.deepseek4_packing import unpack_fp4
from fixtures.target_gguf import add_tokenizer

#: published name without its stage -> GGUF name, outside the blocks
ROOT_NAMES = {
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

Layout = Literal["f32", "published"]


def stored_type(tensor: torch.Tensor, layout: Layout) -> Type:
    """The type in the file of a tensor that is no routed expert: FP8 becomes Q8_0, matrices of BF16 stay."""
    if layout == "f32" or tensor.dim() < 2 or tensor.dtype == torch.float32:
        return Type.F32
    return Type.Q8_0 if tensor.dtype == torch.float8_e4m3fn else Type.BF16


def write_deepseek4_draft(directory: Path, path: Path, layout: Layout) -> None:
    """Writes the draft of the checkpoint in ``directory``; "f32" has the experts in F32 too."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    tensors, tile = load_tensors(directory), config["quantization_config"]["weight_block_size"][0]
    stages = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("mtp."))
    writer = gguf.GGUFWriter(path, "dflash")
    add_sizes(writer, config, stages)
    add_tokenizer(writer, directory, config)
    writer.add_uint32("tokenizer.ggml.mask_token_id", config["dspark_noise_token_id"])
    for name in sorted(name for name in tensors if name.startswith("mtp.")):
        _, stage, rest = name.split(".", 2)
        own = ROOT_NAMES.get(rest) or (f"blk.{stage}.{LAYER_NAMES[rest]}" if rest in LAYER_NAMES else None)
        if own:
            kind = stored_type(tensors[name], layout)
            values = plain(tensors, name, tile)
            writer.add_tensor(own, values if kind == Type.F32 else quantize(values, kind), raw_dtype=kind)
    for i in range(stages):
        for name, own in EXPERT_NAMES.items():
            parts = [f"mtp.{i}.ffn.experts.{e}.{name}" for e in range(config["n_routed_experts"])]
            pairs = [(tensors[f"{part}.weight"], tensors[f"{part}.scale"]) for part in parts]
            pack, kind = (unpack_fp4, Type.F32) if layout == "f32" else (mxfp4, Type.MXFP4)
            stacked = torch.stack([pack(*pair) for pair in pairs]).numpy()
            writer.add_tensor(f"blk.{i}.{own}", stacked, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored_values(directory: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Published name -> the values that the published layout keeps of the FP8 matrices, [rows, columns]."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    tensors, tile = load_tensors(directory), config["quantization_config"]["weight_block_size"][0]
    names = [
        name for name, tensor in tensors.items() if name.startswith("mtp.") and tensor.dtype == torch.float8_e4m3fn
    ]
    return {name: dequantize(quantize(plain(tensors, name, tile), Type.Q8_0), Type.Q8_0) for name in names}


def add_sizes(writer: gguf.GGUFWriter, config: Mapping[str, Any], stages: int) -> None:
    integers = {
        "block_count": stages,
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
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
        "expert_gating_func": SQRT_SOFTPLUS,
        "rope.dimension_count": config["qk_rope_head_dim"],
        "hyper_connection.count": config["hc_mult"],
        "hyper_connection.sinkhorn_iterations": config["hc_sinkhorn_iters"],
        "hash_layer_count": 0,
        "block_size": config["dspark_block_size"],
    }
    floats = {
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "expert_weights_scale": config["routed_scaling_factor"],
        "rope.freq_base": config["rope_theta"],
        "hyper_connection.epsilon": config["hc_eps"],
    }
    for key, integer in integers.items():
        writer.add_uint32(f"dflash.{key}", integer)
    for key, number in floats.items():
        writer.add_float32(f"dflash.{key}", number)
    for key in ("expert_weights_norm", "sample_from_anchor", "has_confidence_head"):
        writer.add_bool(f"dflash.{key}", True)
    for key in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        writer.add_array(f"dflash.{key}", [float(config["swiglu_limit"])] * stages)
    writer.add_array("dflash.attention.compress_ratios", [0] * stages)
    writer.add_array("dflash.target_layers", [layer + 1 for layer in config["dspark_target_layer_ids"]])
