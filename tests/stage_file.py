"""A good little DeepSeek-V4 draft in mainline's layout, made byte by byte, for tests to break on purpose.

Names, order, types and keys are those of the published Flash draft (llama.cpp's converter, October 2026), with
the flags that ours adds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from tests.draft_file import TYPES, DraftFile
from tests.gguf_bytes import ARRAY, STRING, Builder

U32, I32, F32, BOOL = 4, 5, 6, 7


@dataclass(frozen=True)
class Sizes:
    hidden: int = 64
    layers: int = 3
    heads: int = 4
    head_dim: int = 32
    rope: int = 16
    vocab: int = 96
    rank: int = 32
    q_rank: int = 32
    groups: int = 2
    o_rank: int = 32
    experts: int = 4
    used: int = 2
    width: int = 32
    window: int = 8
    streams: int = 4
    context: int = 4096
    taps: tuple[int, ...] = (2, 3, 4)
    mask: int = 93
    scale: float = 1.5


BLOCK_SIZE = 5

SMALL = Sizes()
#: DeepSeek-V4-Flash
FLASH = Sizes(
    hidden=4096,
    heads=64,
    head_dim=512,
    rope=64,
    vocab=129280,
    rank=256,
    q_rank=1024,
    groups=8,
    o_rank=1024,
    experts=256,
    used=6,
    width=2048,
    window=128,
    context=1048576,
    taps=(41, 42, 43),
    mask=128799,
)


def stage_kv(n: Sizes) -> dict[str, tuple[int, Any, int | None]]:
    """key -> (value type, value, item type)."""
    network: dict[str, tuple[int, Any]] = {
        "block_count": (U32, n.layers),
        "context_length": (U32, n.context),
        "embedding_length": (U32, n.hidden),
        "attention.head_count": (U32, n.heads),
        "attention.head_count_kv": (U32, 1),
        "rope.freq_base": (F32, 10000.0),
        "attention.layer_norm_rms_epsilon": (F32, 1e-6),
        "expert_count": (U32, n.experts),
        "expert_used_count": (U32, n.used),
        "expert_gating_func": (U32, 4),
        "attention.key_length": (U32, n.head_dim),
        "attention.value_length": (U32, n.head_dim),
        "rope.dimension_count": (U32, n.rope),
        "attention.q_lora_rank": (U32, n.q_rank),
        "attention.sliding_window": (U32, n.window),
        "expert_feed_forward_length": (U32, n.width),
        "expert_shared_count": (U32, 1),
        "expert_weights_scale": (F32, n.scale),
        "expert_weights_norm": (BOOL, True),
        "attention.output_group_count": (U32, n.groups),
        "attention.output_lora_rank": (U32, n.o_rank),
        "hyper_connection.count": (U32, n.streams),
        "hyper_connection.sinkhorn_iterations": (U32, 20),
        "hyper_connection.epsilon": (F32, 1e-6),
        "hash_layer_count": (U32, 0),
        "block_size": (U32, BLOCK_SIZE),
        "sample_from_anchor": (BOOL, True),
        "has_confidence_head": (BOOL, True),
    }
    rest: dict[str, tuple[int, Any]] = {
        "dspark.backbone": (STRING, "deepseek4"),
        "dspark.rope_style": (STRING, "norm"),
        "dspark.markov_rank": (U32, n.rank),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "joyai-llm"),
        "tokenizer.ggml.eos_token_id": (U32, 94),
        "tokenizer.ggml.mask_token_id": (U32, n.mask),
    }
    kv: dict[str, tuple[int, Any, int | None]] = {
        "general.architecture": (STRING, "dflash", None),
        "general.file_type": (U32, 38, None),
    }
    kv |= {f"dflash.{key}": (kind, value, None) for key, (kind, value) in network.items()}
    kv |= {key: (kind, value, None) for key, (kind, value) in rest.items()}
    for name in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        kv[f"dflash.{name}"] = (ARRAY, [10.0] * n.layers, F32)
    kv["dflash.attention.compress_ratios"] = (ARRAY, [0] * n.layers, I32)
    kv["dflash.target_layers"] = (ARRAY, list(n.taps), I32)
    kv["tokenizer.ggml.tokens"] = (ARRAY, [f"<{i}>" for i in range(n.vocab)], STRING)
    kv["tokenizer.ggml.token_type"] = (ARRAY, [1] * n.vocab, I32)
    kv["tokenizer.ggml.merges"] = (ARRAY, ["< 1", "<1 >"], STRING)
    return kv


def stage_shapes(n: Sizes) -> dict[str, tuple[str, tuple[int, ...]]]:
    """name -> (type, shape in ggml order)."""
    streams, mixed = n.streams * n.hidden, (2 + n.streams) * n.streams
    stage: dict[str, tuple[str, tuple[int, ...]]] = {
        "ffn_gate_exps.weight": ("MXFP4", (n.hidden, n.width, n.experts)),
        "ffn_down_exps.weight": ("MXFP4", (n.width, n.hidden, n.experts)),
        "ffn_up_exps.weight": ("MXFP4", (n.hidden, n.width, n.experts)),
        "attn_sinks.weight": ("F32", (n.heads,)),
        "attn_kv_a_norm.weight": ("F32", (n.head_dim,)),
        "attn_q_a_norm.weight": ("F32", (n.q_rank,)),
        "attn_kv.weight": ("Q8_0", (n.hidden, n.head_dim)),
        "attn_output_a.weight": ("Q8_0", (n.heads * n.head_dim // n.groups, n.groups * n.o_rank)),
        "attn_output_b.weight": ("Q8_0", (n.groups * n.o_rank, n.hidden)),
        "attn_q_a.weight": ("Q8_0", (n.hidden, n.q_rank)),
        "attn_q_b.weight": ("Q8_0", (n.q_rank, n.heads * n.head_dim)),
        "attn_norm.weight": ("F32", (n.hidden,)),
        "exp_probs_b.bias": ("F32", (n.experts,)),
        "ffn_gate_inp.weight": ("BF16", (n.hidden, n.experts)),
        "ffn_gate_shexp.weight": ("Q8_0", (n.hidden, n.width)),
        "ffn_down_shexp.weight": ("Q8_0", (n.width, n.hidden)),
        "ffn_up_shexp.weight": ("Q8_0", (n.hidden, n.width)),
        "ffn_norm.weight": ("F32", (n.hidden,)),
        "hc_attn_base.weight": ("F32", (mixed,)),
        "hc_attn_fn.weight": ("F32", (streams, mixed)),
        "hc_attn_scale.weight": ("F32", (3,)),
        "hc_ffn_base.weight": ("F32", (mixed,)),
        "hc_ffn_fn.weight": ("F32", (streams, mixed)),
        "hc_ffn_scale.weight": ("F32", (3,)),
    }
    tensors = {f"blk.{layer}.{name}": entry for layer in range(n.layers) for name, entry in stage.items()}
    return tensors | {
        "enc.output_norm.weight": ("F32", (n.hidden,)),
        "fc.weight": ("Q8_0", (len(n.taps) * n.hidden, n.hidden)),
        "conf_proj.weight": ("F32", (n.hidden + n.rank, 1)),
        "output_hc_base.weight": ("F32", (n.streams,)),
        "output_hc_fn.weight": ("F32", (streams, n.streams)),
        "output_hc_scale.weight": ("F32", (1,)),
        "markov_w1.weight": ("F32", (n.rank, n.vocab)),
        "markov_w2.weight": ("F32", (n.rank, n.vocab)),
        "output_norm.weight": ("F32", (n.hidden,)),
    }


class StageFile(DraftFile):
    """The good file as data; change ``kv``, ``tensors`` and ``data``, then ``write`` it."""

    def __init__(self, n: Sizes = SMALL) -> None:
        super().__init__()
        self.kv = stage_kv(n)
        self.tensors = stage_shapes(n)


def published_flash() -> StageFile:
    """The Flash draft as llama.cpp's converter writes it: without our keys and flags, with keys that are not read."""
    file = StageFile(FLASH)
    for key in ("sample_from_anchor", "has_confidence_head"):
        del file.kv[f"dflash.{key}"]
    for key in ("dspark.backbone", "dspark.rope_style", "dspark.markov_rank"):
        del file.kv[key]
    unread: dict[str, tuple[int, Any]] = {
        "rope.scaling.type": (STRING, "yarn"),
        "rope.scaling.factor": (F32, 16.0),
        "rope.scaling.original_context_length": (U32, 65536),
        "rope.scaling.yarn_beta_fast": (F32, 32.0),
        "rope.scaling.yarn_beta_slow": (F32, 1.0),
        "attention.indexer.head_count": (U32, 64),
        "attention.indexer.key_length": (U32, 128),
        "attention.indexer.top_k": (U32, 512),
        "attention.compress_rope_freq_base": (F32, 160000.0),
    }
    file.kv |= {f"dflash.{key}": (kind, value, None) for key, (kind, value) in unread.items()}
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight"):
        file.tensors[name] = ("BF16", file.tensors[name][1])
    return file


def write_header(file: DraftFile, path: Path) -> Path:
    """Writes ``file`` with a hole in place of the weights, of which it has gigabytes."""
    build = Builder()
    infos, at = [], 0
    for name, (kind, shape) in file.tensors.items():
        number, elements, size = TYPES[kind]
        infos.append(build.tensor(name, shape, number, at))
        at += -(-prod(shape) // elements * size // 32) * 32
    kvs = [build.kv(key, kind, value, item) for key, (kind, value, item) in file.kv.items()]
    header = build.file(kvs, infos)
    path.write_bytes(header)
    os.truncate(path, len(header) + at)
    return path
