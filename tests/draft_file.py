"""A good little draft GGUF in mainline's layout, made byte by byte, for tests to break on purpose."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tests.gguf_bytes import ARRAY, STRING, Builder

U32, I32, F32, BOOL = 4, 5, 6, 7

#: ggml type -> (number, elements a block, bytes a block)
TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q8_0": (8, 32, 34),
    "I64": (27, 1, 8),
    "BF16": (30, 1, 2),
    "MXFP4": (39, 32, 17),
    "NVFP4": (40, 64, 36),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q2_0": (42, 64, 18),
}

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, VOCAB, RANK = 64, 2, 4, 2, 16, 96, 80, 32
TAPS = [1, 3, 5]
BLOCK_SIZE, MASK = 7, 77


def good_kv() -> dict[str, tuple[int, Any, int | None]]:
    """key -> (value type, value, item type)."""
    scalars: dict[str, tuple[int, Any]] = {
        "general.architecture": (STRING, "dflash"),
        "general.name": (STRING, "Tiny draft"),
        "dflash.block_count": (U32, LAYERS),
        "dflash.context_length": (U32, 4096),
        "dflash.embedding_length": (U32, HIDDEN),
        "dflash.feed_forward_length": (U32, FEED_FORWARD),
        "dflash.attention.head_count": (U32, HEADS),
        "dflash.attention.head_count_kv": (U32, KV_HEADS),
        "dflash.rope.freq_base": (F32, 1e6),
        "dflash.attention.layer_norm_rms_epsilon": (F32, 1e-6),
        "dflash.attention.key_length": (U32, HEAD_DIM),
        "dflash.attention.value_length": (U32, HEAD_DIM),
        "dflash.block_size": (U32, BLOCK_SIZE),
        "dflash.sample_from_anchor": (BOOL, True),
        "dflash.has_confidence_head": (BOOL, True),
        "dspark.block_size": (U32, BLOCK_SIZE),
        "dspark.backbone": (STRING, "qwen3"),
        "dspark.rope_style": (STRING, "neox"),
        "dspark.markov_head_type": (STRING, "vanilla"),
        "dspark.markov_rank": (U32, RANK),
        "dspark.source": (STRING, "someone/tiny"),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, "qwen2"),
        "tokenizer.ggml.eos_token_id": (U32, 78),
        "tokenizer.ggml.mask_token_id": (U32, MASK),
        "tokenizer.chat_template": (STRING, "{% for m in messages %}{{ m.content }}{% endfor %}\n"),
    }
    kv: dict[str, tuple[int, Any, int | None]] = {key: (kind, value, None) for key, (kind, value) in scalars.items()}
    kv["dflash.target_layers"] = (ARRAY, list(TAPS), I32)
    kv["dspark.target_layers"] = (ARRAY, list(TAPS), I32)
    kv["tokenizer.ggml.tokens"] = (ARRAY, [f"<{i}>" for i in range(VOCAB)], STRING)
    kv["tokenizer.ggml.token_type"] = (ARRAY, [1] * VOCAB, I32)
    kv["tokenizer.ggml.merges"] = (ARRAY, ["< 1", "<1 >"], STRING)
    return kv


def good_shapes() -> dict[str, tuple[str, tuple[int, ...]]]:
    """name -> (type, shape in ggml order)."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "fc.weight": ("F32", (len(TAPS) * HIDDEN, HIDDEN)),
        "enc.output_norm.weight": ("F32", (HIDDEN,)),
        "output_norm.weight": ("F32", (HIDDEN,)),
        "markov_w1.weight": ("BF16", (RANK, VOCAB)),
        "markov_w2.weight": ("Q8_0", (RANK, VOCAB)),
        "conf_proj.weight": ("F16", (HIDDEN + RANK, 1)),
        "conf_proj.bias": ("F32", (1,)),
    }
    for layer in range(LAYERS):
        shapes = {
            "attn_norm": (HIDDEN,),
            "attn_q": (HIDDEN, HEADS * HEAD_DIM),
            "attn_k": (HIDDEN, KV_HEADS * HEAD_DIM),
            "attn_v": (HIDDEN, KV_HEADS * HEAD_DIM),
            "attn_output": (HEADS * HEAD_DIM, HIDDEN),
            "attn_q_norm": (HEAD_DIM,),
            "attn_k_norm": (HEAD_DIM,),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (HIDDEN, FEED_FORWARD),
            "ffn_up": (HIDDEN, FEED_FORWARD),
            "ffn_down": (FEED_FORWARD, HIDDEN),
        }
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = ("F32", shape)
    return tensors


class DraftFile:
    """The good file as data; change ``kv``, ``tensors`` and ``data``, then ``write`` it."""

    def __init__(self) -> None:
        self.kv = good_kv()
        self.tensors = good_shapes()
        #: bytes of single tensors; the others get small random numbers
        self.data: dict[str, bytes] = {}

    def write(self, path: Path, order: str = "<", version: int = 3) -> Path:
        build = Builder(order, version)
        rng = np.random.default_rng(7)
        infos, blob = [], b""
        for name, (kind, shape) in self.tensors.items():
            data = self.data.get(name) or encode(rng, kind, prod(shape), order)
            infos.append(build.tensor(name, shape, TYPES[kind][0], len(blob)))
            blob += data + bytes(-len(data) % 32)
        kvs = [build.kv(key, kind, value, item) for key, (kind, value, item) in self.kv.items()]
        path.write_bytes(build.file(kvs, infos, blob))
        return path


def encode(rng: np.random.Generator, kind: str, count: int, order: str) -> bytes:
    values = rng.normal(size=count).astype(f"{order}f4")
    if kind == "F32":
        return values.tobytes()
    if kind == "F16":
        return values.astype(f"{order}f2").tobytes()
    if kind == "BF16":
        return (values.view(f"{order}u4") >> 16).astype(f"{order}u2").tobytes()
    if kind == "I64":
        return np.arange(count, dtype=f"{order}i8").tobytes()
    block = struct.pack(f"{order}e", 0.01) + bytes(range(1, 33))
    if kind == "NVFP4":  # four scales of 1, then 64 values
        return (bytes([56] * 4) + bytes(range(1, 33))) * (count // 64)
    if kind == "MXFP4":
        block = bytes([120]) + bytes(range(1, 17))
    return block * (count // 32)
