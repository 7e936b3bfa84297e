"""The tiny pair's draft in the layouts of forks and early branches, by hand from mainline's, for the port.

What each layout is, ``tests/ggufio/layout_files.py`` says where it is documented; here its words stand for a draft
that runs. ``Expected`` is a file as data (``tests.oracle``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from tests.oracle import Expected

MASK = "tokenizer.ggml.mask_token_id"

PRISM_NAMES = {
    "fc.weight": "dspark.fc.weight",
    "enc.output_norm.weight": "dspark.hidden_norm.weight",
    "markov_w1.weight": "dspark.markov_head_a.weight",
    "markov_w2.weight": "dspark.markov_head_b.weight",
    "conf_proj.weight": "dspark.confidence_head.weight",
    "conf_proj.bias": "dspark.confidence_head.bias",
}
FORK_NAMES = {
    "markov_w1.weight": "markov.w1.weight",
    "markov_w2.weight": "markov.w2.weight",
    "conf_proj.weight": "confidence.proj.weight",
    "conf_proj.bias": "confidence.proj.bias",
}
IK_NAMES = {"fc.weight": "dflash_fc.weight", "enc.output_norm.weight": "dflash_hidden_norm.weight"} | {
    f"blk.{layer}.ffn_norm.weight": f"blk.{layer}.post_attention_norm.weight" for layer in range(3)
}

#: what a DeepSeek-V4 stage's tensors outside the layers are called by ds4
DS4_NAMES = {
    "fc.weight": "mtp.0.main_proj.weight",
    "enc.output_norm.weight": "mtp.0.main_norm.weight",
    "output_norm.weight": "mtp.2.norm.weight",
    "output_hc_base.weight": "mtp.2.hc_head_base.weight",
    "output_hc_fn.weight": "mtp.2.hc_head_fn.weight",
    "output_hc_scale.weight": "mtp.2.hc_head_scale.weight",
    "markov_w1.weight": "mtp.2.markov_head.markov_w1.weight",
    "markov_w2.weight": "mtp.2.markov_head.markov_w2.weight",
    "conf_proj.weight": "mtp.2.confidence_head.proj.weight",
}


def early(file: Expected) -> Expected:
    kv = _network(file, "dspark", "dspark")
    kv["dspark.block_size"] = file.kv["dflash.block_size"]
    kv["dspark.target_layers"] = file.kv["dflash.target_layers"]
    kv["dspark.markov_rank"] = ("UINT32", file.tensors["markov_w1.weight"][1][0])
    return Expected(kv | {MASK: file.kv[MASK]}, dict(file.tensors))


def fork(file: Expected) -> Expected:
    kv = early(file).kv | {
        "dspark.markov_head_type": ("STRING", "vanilla"),
        "dspark.enable_confidence_head": ("BOOL", True),
        "dspark.confidence_head_with_markov": ("BOOL", True),
    }
    return Expected(kv, _renamed(file, FORK_NAMES))


def prism(file: Expected) -> Expected:
    kv = _network(file, "dspark", "dspark") | {
        "dspark.vocab_size": ("UINT32", file.tensors["markov_w1.weight"][1][1]),
        "dspark.dspark.block_size": file.kv["dflash.block_size"],
        "dspark.dspark.mask_token_id": file.kv[MASK],
        "dspark.dspark.target_layers": ("ARRAY[UINT32]", _outputs(file)),
        "dspark.dspark.markov_rank": ("UINT32", file.tensors["markov_w1.weight"][1][0]),
        "dspark.dspark.confidence_head": ("BOOL", True),
        "dspark.dspark.confidence_head_with_markov": ("BOOL", True),
        "dspark.dspark.log_snr_conditioning": ("BOOL", False),
        "tokenizer.ggml.model": ("STRING", "none"),
    }
    return Expected(kv, _renamed(file, PRISM_NAMES))


def ik(file: Expected) -> Expected:
    kv = _network(file, "dflash-draft", "dflash-draft") | {
        "dflash-draft.attention.causal": ("BOOL", False),
        "dflash-draft.rope.dimension_count": file.kv["dflash.attention.key_length"],
        "dflash-draft.dflash.block_size": file.kv["dflash.block_size"],
        "dflash-draft.dflash.mask_token_id": file.kv[MASK],
        "dflash-draft.dflash.target_layer_ids": ("ARRAY[INT32]", _outputs(file)),
        "dflash-draft.dflash.n_target_features": ("UINT32", file.tensors["fc.weight"][1][0]),
    }
    return Expected(kv, _renamed(file, IK_NAMES))


def bare(file: Expected) -> Expected:
    """No flags, no list of tokens, and norms in BF16."""
    kv = {key: value for key, value in file.kv.items() if "anchor" not in key and "confidence" not in key}
    tensors = {
        name: (kind, shape, data) if "norm" not in name else ("BF16", shape, _upper_halves(data))
        for name, (kind, shape, data) in file.tensors.items()
    }
    return Expected(kv | {"tokenizer.ggml.model": ("STRING", "gpt2")}, tensors)


def ds4(file: Expected) -> Expected:
    """Of a DeepSeek-V4 draft: few sizes, the rest being the target's."""
    names = {name: name.replace("blk.", "mtp.", 1) for name in file.tensors if name.startswith("blk.")} | DS4_NAMES
    kv = {
        "general.architecture": ("STRING", "deepseek4-dspark"),
        "dspark.block_size": file.kv["dflash.block_size"],
        "dspark.markov_rank": ("UINT32", file.tensors["markov_w1.weight"][1][0]),
        "dspark.noise_token_id": file.kv[MASK],
        "dspark.stage_count": file.kv["dflash.block_count"],
        "dspark.n_layers": file.kv["dflash.block_count"],
        "dspark.target_layer_ids": ("ARRAY[UINT32]", _outputs(file)),
    }
    return Expected(kv, _renamed(file, names))


def write_plain(want: Expected, path: Path) -> Path:
    """Writes ``want`` as it is; no vocabulary is added."""
    kv = dict(want.kv)
    writer = gguf.GGUFWriter(path, kv.pop("general.architecture")[1])
    for key, (kind, value) in kv.items():
        if kind.startswith("ARRAY["):
            items = gguf.GGUFValueType[kind.removeprefix("ARRAY[").removesuffix("]")]
            writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, sub_type=items)
        else:
            writer.add_key_value(key, value, gguf.GGUFValueType[kind])
    for name, (kind, shape, data) in want.tensors.items():
        rows = np.frombuffer(data, np.uint8).reshape(*reversed(shape[1:]), -1)
        writer.add_tensor(name, rows, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _network(file: Expected, architecture: str, prefix: str) -> dict[str, tuple[str, object]]:
    """The sizes that every layout of drafts like Qwen3 has."""
    own = ("block_size", "target_layers", "sample_from_anchor", "has_confidence_head")
    return {"general.architecture": ("STRING", architecture)} | {
        key.replace("dflash.", f"{prefix}.", 1): value
        for key, value in file.kv.items()
        if key.startswith("dflash.") and key.removeprefix("dflash.") not in own
    }


def _outputs(file: Expected) -> list[int]:
    return [tap - 1 for tap in file.kv["dflash.target_layers"][1]]


def _renamed(file: Expected, names: Mapping[str, str]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {names.get(name, name): tensor for name, tensor in file.tensors.items()}


def _upper_halves(data: bytes) -> bytes:
    """F32 numbers that are BF16 ones as such."""
    bits = np.frombuffer(data, np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16).tobytes()
