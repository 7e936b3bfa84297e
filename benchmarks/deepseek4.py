"""The layout of a DeepSeek-V4 checkpoint: its draft (the ``mtp.*`` tensors) and the names of all the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.shards import Layout


@dataclass(frozen=True)
class Sizes:
    hidden: int = 4096
    experts: int = 256
    expert_width: int = 2048
    stages: int = 3
    heads: int = 64
    head_dim: int = 512
    q_rank: int = 1024
    o_rank: int = 1024
    o_groups: int = 8
    vocab: int = 129_280
    rank: int = 256
    target_layers: int = 43


FLASH = Sizes()
#: Flash, scaled to 1.39 GB
SCALED = Sizes(hidden=2048, experts=96, expert_width=1024)

_MIXES = 4
_Entries = dict[str, tuple[str, tuple[int, ...]]]


def _fp8(name: str, rows: int, columns: int) -> _Entries:
    """A matrix with a scale for each 128 x 128 of it."""
    scales = (-(-rows // 128), -(-columns // 128))
    return {f"{name}.weight": ("F8_E4M3", (rows, columns)), f"{name}.scale": ("F8_E8M0", scales)}


def _fp4(name: str, rows: int, columns: int) -> _Entries:
    """A matrix of two values a byte with a scale for each 32 of a row."""
    return {f"{name}.weight": ("I8", (rows, columns // 2)), f"{name}.scale": ("F8_E8M0", (rows, columns // 32))}


def _stage(prefix: str, s: Sizes) -> _Entries:
    attn, ffn, width = f"{prefix}attn.", f"{prefix}ffn.", s.heads * s.head_dim
    entries: _Entries = {
        f"{attn}attn_sink": ("F32", (s.heads,)),
        f"{attn}kv_norm.weight": ("BF16", (s.head_dim,)),
        f"{attn}q_norm.weight": ("BF16", (s.q_rank,)),
        **_fp8(f"{attn}wkv", s.head_dim, s.hidden),
        **_fp8(f"{attn}wo_a", s.o_groups * s.o_rank, width // s.o_groups),
        **_fp8(f"{attn}wo_b", s.hidden, s.o_groups * s.o_rank),
        **_fp8(f"{attn}wq_a", s.q_rank, s.hidden),
        **_fp8(f"{attn}wq_b", width, s.q_rank),
        f"{prefix}attn_norm.weight": ("BF16", (s.hidden,)),
        f"{prefix}ffn_norm.weight": ("BF16", (s.hidden,)),
        f"{ffn}gate.weight": ("BF16", (s.experts, s.hidden)),
        f"{ffn}gate.bias": ("F32", (s.experts,)),
    }
    for part in ("attn", "ffn"):
        entries |= {
            f"{prefix}hc_{part}_base": ("F32", ((2 + _MIXES) * _MIXES,)),
            f"{prefix}hc_{part}_fn": ("F32", ((2 + _MIXES) * _MIXES, _MIXES * s.hidden)),
            f"{prefix}hc_{part}_scale": ("F32", (3,)),
        }
    for matrix, rows, columns in _feed_forward(s):
        entries |= _fp8(f"{ffn}shared_experts.{matrix}", rows, columns)
        for expert in range(s.experts):
            entries |= _fp4(f"{ffn}experts.{expert}.{matrix}", rows, columns)
    return entries


def _feed_forward(s: Sizes) -> list[tuple[str, int, int]]:
    return [("w1", s.expert_width, s.hidden), ("w2", s.hidden, s.expert_width), ("w3", s.expert_width, s.hidden)]


def stages(s: Sizes) -> list[Layout]:
    """The draft, a stage each; Flash: 4,705 tensors, 10,862,838,300 bytes."""
    result = [_stage(f"mtp.{i}.", s) for i in range(s.stages)]
    result[0] |= _fp8("mtp.0.main_proj", s.hidden, 3 * s.hidden)
    result[0]["mtp.0.main_norm.weight"] = ("BF16", (s.hidden,))
    last = f"mtp.{s.stages - 1}."
    result[-1] |= {
        f"{last}norm.weight": ("BF16", (s.hidden,)),
        f"{last}hc_head_base": ("F32", (_MIXES,)),
        f"{last}hc_head_fn": ("F32", (_MIXES, _MIXES * s.hidden)),
        f"{last}hc_head_scale": ("F32", (1,)),
        f"{last}markov_head.markov_w1.weight": ("BF16", (s.vocab, s.rank)),
        f"{last}markov_head.markov_w2.weight": ("BF16", (s.vocab, s.rank)),
        f"{last}confidence_head.proj.weight": ("BF16", (1, s.hidden + s.rank)),
    }
    return list(result)


def compress_ratios(s: Sizes) -> list[int]:
    """By layer, those of the draft's stages (0) last."""
    return [0, 0, *(4 if i % 2 == 0 else 128 for i in range(s.target_layers - 2)), *[0] * s.stages]


def target_names(s: Sizes) -> list[str]:
    """The tensors of the target itself; Flash: 67,612."""
    names = ["embed.weight", "head.weight", "norm.weight", "hc_head_base", "hc_head_fn", "hc_head_scale"]
    for layer, ratio in zip(range(s.target_layers), compress_ratios(s), strict=False):
        names += list(_stage(prefix := f"layers.{layer}.", s))
        parts = ["compressor"] if ratio else []
        if ratio == 4:
            parts.append("indexer.compressor")
            names += [f"{prefix}attn.indexer.{name}" for name in ("wq_b.weight", "wq_b.scale", "weights_proj.weight")]
        for part in parts:
            names += [f"{prefix}attn.{part}.{name}" for name in ("ape", "wkv.weight", "wgate.weight", "norm.weight")]
    return names


def config(s: Sizes) -> dict[str, Any]:
    """config.json as the published one, at these sizes."""
    return {
        "architectures": ["DeepseekV4ForCausalLM"],
        "bos_token_id": 0,
        "compress_ratios": compress_ratios(s),
        "compress_rope_theta": 160000,
        "dspark_block_size": 5,
        "dspark_markov_rank": s.rank,
        "dspark_noise_token_id": s.vocab - 481,
        "dspark_target_layer_ids": [s.target_layers - 3, s.target_layers - 2, s.target_layers - 1],
        "eos_token_id": 1,
        "expert_dtype": "fp4",
        "hc_eps": 1e-06,
        "hc_mult": _MIXES,
        "hc_sinkhorn_iters": 20,
        "head_dim": s.head_dim,
        "hidden_act": "silu",
        "hidden_size": s.hidden,
        "index_head_dim": 128,
        "index_n_heads": 64,
        "index_topk": 512,
        "max_position_embeddings": 1048576,
        "model_type": "deepseek_v4",
        "moe_intermediate_size": s.expert_width,
        "n_routed_experts": s.experts,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": s.heads,
        "num_experts_per_tok": 6,
        "num_hash_layers": 3,
        "num_hidden_layers": s.target_layers,
        "num_key_value_heads": 1,
        "num_nextn_predict_layers": 1,
        "o_groups": s.o_groups,
        "o_lora_rank": s.o_rank,
        "q_lora_rank": s.q_rank,
        "qk_rope_head_dim": 64,
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "quant_method": "fp8",
            "scale_fmt": "ue8m0",
            "weight_block_size": [128, 128],
        },
        "rms_norm_eps": 1e-06,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 16,
            "original_max_position_embeddings": 65536,
            "type": "yarn",
        },
        "rope_theta": 10000,
        "routed_scaling_factor": 1.5,
        "scoring_func": "sqrtsoftplus",
        "sliding_window": 128,
        "swiglu_limit": 10.0,
        "tie_word_embeddings": False,
        "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": s.vocab,
    }
