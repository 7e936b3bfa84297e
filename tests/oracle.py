"""What a conversion of a DeepSpec Qwen3 draft has to give, worked out without the converter.

Shares no code with ``dspark_convert``: tensors come from safetensors' torch loader, casts are
torch's, Q8_0 is that of the ``gguf`` package, files are written by ``gguf.GGUFWriter``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFValueType
from safetensors.torch import load_file

FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}

#: rank of the Markov head of zeros that an anchor-first draft without one gets
ZERO_MARKOV_RANK = 32

#: DeepSpec's name -> the runtime's, outside the layers
NAMES = {
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "fc.weight": "fc.weight",
    "hidden_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
    "confidence_head.proj.bias": "conf_proj.bias",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.k_proj": "attn_k",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.v_proj": "attn_v",
}


@dataclass(frozen=True)
class Expected:
    """``kv``: key -> (type name, value), in the file's order, "ARRAY[INT32]" for an array of them;
    ``tensors``: name -> (type name, shape in ggml order, bytes)."""

    kv: dict[str, tuple[str, Any]]
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]]


def expected(
    draft_dir: Path, target_dir: Path, outtype: str, *, shared: str = "omit", dialect: str = "dflash"
) -> Expected:
    """The runtime's own keys and all tensors. ``dialect`` "dflash" or "dspark" (the early revision).

    The tokenizer's keys come from the target and are not listed, save the mask token's.
    """
    config = json.loads((draft_dir / "config.json").read_text(encoding="utf-8"))
    target = json.loads((target_dir / "config.json").read_text(encoding="utf-8"))
    sources = load_file(draft_dir / "model.safetensors")
    if outtype == "auto":
        outtype = "bf16" if sources["fc.weight"].dtype == torch.bfloat16 else "f16"
    if shared == "omit":
        del sources["embed_tokens.weight"], sources["lm_head.weight"]
    elif shared != "include":
        raise ValueError(shared)
    complete_heads(sources, config, target["vocab_size"])
    tensors = {gguf_name(name): encode(tensor, outtype) for name, tensor in sources.items()}
    return Expected(expected_kv(config, sources, FILE_TYPES[outtype], dialect), tensors)


def complete_heads(sources: dict[str, torch.Tensor], config: dict[str, Any], vocab_size: int) -> None:
    """Adds what the runtime needs to run a draft without (all of) the heads anchor-first: zeros."""
    dtype = sources["fc.weight"].dtype
    if "markov_head.markov_w1.weight" not in sources:
        for name in ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight"):
            sources[name] = torch.zeros((vocab_size, ZERO_MARKOV_RANK), dtype=dtype)
    confidence = sources.get("confidence_head.proj.weight")
    if confidence is not None and confidence.shape[1] == config["hidden_size"]:
        columns = torch.zeros((1, sources["markov_head.markov_w1.weight"].shape[1]), dtype=dtype)
        sources["confidence_head.proj.weight"] = torch.cat((confidence, columns), 1)


def gguf_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, layer, part = name.removesuffix(".weight").split(".", 2)
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def encode(tensor: torch.Tensor, outtype: str) -> tuple[str, tuple[int, ...], bytes]:
    shape = tuple(reversed(tensor.shape))
    kind = "f32" if tensor.dim() == 1 else "f16" if outtype == "q8_0" and shape[0] % 32 else outtype
    if kind == "q8_0":
        blocks = gguf.quants.quantize(tensor.float().numpy(), GGMLQuantizationType.Q8_0)
        return "Q8_0", shape, blocks.tobytes()
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[kind]
    return kind.upper(), shape, tensor.to(dtype).contiguous().view(torch.uint8).numpy().tobytes()


def expected_kv(
    config: dict[str, Any], sources: dict[str, torch.Tensor], file_type: int, dialect: str
) -> dict[str, tuple[str, Any]]:
    taps = [0 if i == -1 else i + 1 for i in config["target_layer_ids"]]
    rope = config.get("rope_parameters") or config
    own: dict[str, tuple[str, Any]] = {
        "block_count": ("UINT32", config["num_hidden_layers"]),
        "context_length": ("UINT32", config["max_position_embeddings"]),
        "embedding_length": ("UINT32", config["hidden_size"]),
        "feed_forward_length": ("UINT32", config["intermediate_size"]),
        "attention.head_count": ("UINT32", config["num_attention_heads"]),
        "attention.head_count_kv": ("UINT32", config["num_key_value_heads"]),
        "rope.freq_base": ("FLOAT32", float(np.float32(rope["rope_theta"]))),
        "attention.layer_norm_rms_epsilon": ("FLOAT32", float(np.float32(config["rms_norm_eps"]))),
        "attention.key_length": ("UINT32", config["head_dim"]),
        "attention.value_length": ("UINT32", config["head_dim"]),
    }
    last: dict[str, tuple[str, Any]] = {
        "block_size": ("UINT32", config["block_size"]),
        "target_layers": ("ARRAY[INT32]", taps),
    }
    if dialect == "dflash":
        last["sample_from_anchor"] = ("BOOL", True)
        last["has_confidence_head"] = ("BOOL", "confidence_head.proj.weight" in sources)
    else:
        last["markov_rank"] = ("UINT32", sources["markov_head.markov_w1.weight"].shape[1])
    return {
        "general.architecture": ("STRING", dialect),
        **{f"{dialect}.{key}": value for key, value in own.items()},
        "general.file_type": ("UINT32", file_type),
        **{f"{dialect}.{key}": value for key, value in last.items()},
        "tokenizer.ggml.mask_token_id": ("UINT32", config["mask_token_id"]),
    }


def write(want: Expected, path: Path, target_gguf: Path) -> None:
    """Writes ``want`` as a draft GGUF that llama.cpp loads, with the tokenizer of ``target_gguf``."""
    kv = dict(want.kv)
    architecture = kv.pop("general.architecture")[1]
    mask = kv.pop("tokenizer.ggml.mask_token_id")[1]
    writer = gguf.GGUFWriter(path, architecture)
    for key, (kind, value) in kv.items():
        if kind.startswith("ARRAY["):
            items = GGUFValueType[kind.removeprefix("ARRAY[").removesuffix("]")]
            writer.add_key_value(key, value, GGUFValueType.ARRAY, sub_type=items)
        else:
            writer.add_key_value(key, value, GGUFValueType[kind])
    for field in gguf.GGUFReader(target_gguf).fields.values():
        if field.name.startswith("tokenizer.") and field.name != "tokenizer.ggml.mask_token_id":
            sub_type = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)
    writer.add_mask_token_id(mask)
    for name, (kind, shape, data) in want.tensors.items():
        # rows of bytes, as the writer wants a tensor whose type numpy does not know
        rows = np.frombuffer(data, np.uint8).reshape(*reversed(shape[1:]), -1)
        writer.add_tensor(name, rows, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read(path: Path) -> Expected:
    """Any GGUF as an ``Expected``, through the ``gguf`` package: to compare with ``expected``."""
    reader = gguf.GGUFReader(path)
    kv = {
        field.name: (
            f"ARRAY[{field.types[1].name}]" if len(field.types) > 1 else field.types[0].name,
            field.contents(),
        )
        for field in reader.fields.values()
        if not field.name.startswith("GGUF.")
    }
    tensors = {t.name: (t.tensor_type.name, tuple(int(n) for n in t.shape), t.data.tobytes()) for t in reader.tensors}
    return Expected(kv, tensors)
