"""What the conversion of a tiny draft of another family has to give, worked out without the converter.

As ``tests.oracle``: names are written down by hand, tensors come from safetensors' torch loader, casts are torch's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from fixtures.families.nvfp4 import unpack
from tests import oracle
from tests.dflash2_oracle import CONV_NAMES, SELECTOR_NAMES

WINDOWED = (True, True, True)


@dataclass(frozen=True)
class Family:
    """``kv``: the runtime's keys beyond a plain draft's, and those that differ; ``gone``: tensors left out.

    ``outside`` and ``layer``: names of its own, as in ``oracle.NAMES`` and ``oracle.LAYER_NAMES``, the GGUF's whole;
    ``made``: tensors that no checkpoint holds. ``neighbours``: rotary pairs are neighbours in the checkpoint.
    """

    kv: dict[str, tuple[str, Any]]
    gone: tuple[str, ...] = ()
    outside: dict[str, str] = field(default_factory=dict)
    layer: dict[str, str] = field(default_factory=dict)
    made: dict[str, torch.Tensor] = field(default_factory=dict)
    neighbours: bool = False


def window(length: int, pattern: tuple[bool, ...] = WINDOWED) -> dict[str, tuple[str, Any]]:
    return {
        "dflash.attention.sliding_window": ("UINT32", length),
        "dflash.attention.sliding_window_pattern": ("ARRAY[BOOL]", list(pattern)),
    }


CAUSAL = {"dflash.attention.causal": ("BOOL", True)}
BONUS = {"dflash.sample_from_anchor": ("BOOL", False)}
NO_CONFIDENCE = {"dflash.has_confidence_head": ("BOOL", False)}
CONFIDENCE = {"dflash.has_confidence_head": ("BOOL", True)}
ANCHOR = {"dflash.sample_from_anchor": ("BOOL", True)}
TAPS = {"dflash.target_layers": ("ARRAY[INT32]", [1, 2, 3])}
BLOCK = {"dflash.block_size": ("UINT32", 8)}
#: the target's vocabulary has tables of its own; t2d says what d2t says
REDUCED = ("embed_tokens.weight", "t2d")
LEFTOVERS = ("verifier_norm.weight", "verifier_lm_head.weight")
DFLASH2 = {
    "dflash.conv_kernel_size": ("UINT32", 2),
    "dflash.conv_group_size": ("UINT32", 16),
    "dflash.selector_rank": ("UINT32", 16),
    "dflash.selector_top_k": ("UINT32", 8),
}
F32_SQRT_128 = 11.313708305358887

DSPARK = ANCHOR | CONFIDENCE | TAPS | {"dflash.block_size": ("UINT32", 7)}
DFLASH = BONUS | NO_CONFIDENCE | TAPS | BLOCK
EPSILON = {"dflash.attention.layer_norm_rms_epsilon": ("FLOAT32", 9.999999747378752e-06)}
SINKS = {"self_attn.attention_sink_bias": "attn_sinks.weight"}
TABLES = ("embed_tokens.weight", "lm_head.weight")
MIMO = Family(
    DFLASH
    | EPSILON
    | window(12)
    | {
        "dflash.attention.value_scale": ("FLOAT32", 0.6119999885559082),
        # half of a head of 32
        "dflash.rope.dimension_count": ("UINT32", 16),
    },
    layer=SINKS,
)

FAMILIES = {
    "deepspec_qwen36": Family(DSPARK, gone=TABLES),
    "ling": Family(DSPARK, gone=TABLES),
    "fork_label": Family(DSPARK),
    "hunyuan_ocr": Family(DFLASH | {"dflash.target_layers": ("ARRAY[INT32]", [1, 2, 3, 4])}),
    "kolibri": Family(DSPARK | window(12)),
    "lfm2": Family(DSPARK | EPSILON | {"dflash.block_size": ("UINT32", 9)}, neighbours=True),
    "mimo": MIMO,
    "mimo_bare": MIMO,
    "mimo_keyed": MIMO,
    "muse": Family(
        DFLASH | EPSILON | window(12),
        outside={"encoder.fc.weight": "fc.weight", "encoder.output_norm_enc.weight": "enc.output_norm.weight"},
    ),
    "specforge": Family(DSPARK),
    "specforge_early": Family(
        DSPARK,
        outside={
            "logit_head.markov_head.markov_w1.weight": "markov_w1.weight",
            "logit_head.markov_head.markov_w2.weight": "markov_w2.weight",
            "logit_head.confidence_head.proj.weight": "conf_proj.weight",
            "logit_head.confidence_head.proj.bias": "conf_proj.bias",
        },
    ),
    "specforge_yarn": Family(
        DSPARK
        | EPSILON
        | {
            "dflash.rope.scaling.type": ("STRING", "yarn"),
            "dflash.rope.scaling.factor": ("FLOAT32", 16.0),
            "dflash.rope.scaling.original_context_length": ("UINT32", 64),
        }
    ),
    "zlab_dflash": Family(DFLASH),
    "zlab_dflash_flat": Family(DFLASH),
    "zlab_dflash_windows": Family(DFLASH | window(12, (True, True, False)) | CAUSAL),
    "speculators_dspark_bonus": Family(window(12) | CAUSAL | BONUS | CONFIDENCE | TAPS | BLOCK, gone=REDUCED),
    "speculators_dspark_anchor": Family(window(12) | CAUSAL | ANCHOR | CONFIDENCE | TAPS | BLOCK),
    "speculators_dflash": Family(
        window(12, (True, False, True)) | CAUSAL | BONUS | NO_CONFIDENCE | TAPS | BLOCK, gone=REDUCED
    ),
    "speculators_dflash_full": Family(BONUS | NO_CONFIDENCE | TAPS | BLOCK, gone=REDUCED),
    "speculators_dflash_leftovers": Family(
        window(12, (True, False, True)) | CAUSAL | BONUS | NO_CONFIDENCE | TAPS | BLOCK, gone=(*REDUCED, *LEFTOVERS)
    ),
    "nemotron": Family(
        window(12)
        | CAUSAL
        | BONUS
        | NO_CONFIDENCE
        | BLOCK
        # the last is what leaves the tiny target's four layers
        | {"dflash.target_layers": ("ARRAY[INT32]", [1, 2, 4])},
        layer=SINKS,
    ),
    "gemma4": Family(
        ANCHOR
        | CONFIDENCE
        | TAPS
        | {
            "dflash.block_size": ("UINT32", 7),
            "dflash.attention.head_count_kv": ("UINT32", 1),
            "dflash.attention.key_length": ("UINT32", 64),
            "dflash.attention.value_length": ("UINT32", 64),
            "dflash.rope.freq_base": ("FLOAT32", 1000000.0),
            "dflash.attention.scale": ("FLOAT32", 1.0),
            "dflash.embedding_scale": ("FLOAT32", F32_SQRT_128),
            "dflash.hidden_activation": ("STRING", "gelu_pytorch_tanh"),
            "dflash.final_logit_softcapping": ("FLOAT32", 30.0),
        },
        gone=TABLES,
        layer={
            "post_attention_layernorm.weight": "post_attention_norm.weight",
            "pre_feedforward_layernorm.weight": "ffn_norm.weight",
            "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
            "layer_scalar": "layer_output_scale.weight",
        },
        # a quarter of 32 pairs turns
        made={"rope_freqs.weight": torch.tensor([1.0] * 8 + [1e30] * 24)},
    ),
    "dflash2": Family(
        window(24) | BONUS | NO_CONFIDENCE | TAPS | BLOCK | DFLASH2, outside=SELECTOR_NAMES, layer=CONV_NAMES
    ),
    "dflash2_muse": Family(
        window(24)
        | BONUS
        | NO_CONFIDENCE
        | TAPS
        | DFLASH2
        | {
            "dflash.block_size": ("UINT32", 16),
            "dflash.logit_scale": ("FLOAT32", 0.19611613452434540),
            "dflash.final_logit_softcapping": ("FLOAT32", 20.0),
        },
        outside=SELECTOR_NAMES,
        layer=CONV_NAMES,
    ),
}


def common_kv(draft: Path) -> dict[str, tuple[str, Any]]:
    """What layers like Qwen3's of the fixtures' sizes have in every family."""
    config = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    sizes = config.get("transformer_layer_config", config)
    return {
        "dflash.block_count": ("UINT32", 3),
        "dflash.context_length": ("UINT32", 1024),
        "dflash.embedding_length": ("UINT32", 128),
        "dflash.feed_forward_length": ("UINT32", sizes["intermediate_size"]),
        "dflash.attention.head_count": ("UINT32", 4),
        "dflash.attention.head_count_kv": ("UINT32", 2),
        "dflash.rope.freq_base": ("FLOAT32", 10000.0),
        "dflash.attention.layer_norm_rms_epsilon": ("FLOAT32", 9.999999974752427e-07),
        "dflash.attention.key_length": ("UINT32", 32),
        "dflash.attention.value_length": ("UINT32", 32),
    }


def expected_tensors(name: str, draft: Path, outtype: str) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Of plain numbers; those that are packed in NVFP4 are in ``unpacked``."""
    family = FAMILIES[name]
    sources = load_file(next(draft.glob("*.safetensors")))
    result = {}
    for source, tensor in sources.items():
        if source in family.gone or source.removesuffix("_2").removesuffix("_scale") in unpacked(draft):
            continue
        if source == "d2t":
            ids = (tensor + torch.arange(len(tensor))).numpy().tobytes()
            result["d2t"] = ("I64", tuple(tensor.shape), ids)
            continue
        kind = "f32" if source.endswith("base_kernel") else outtype
        rotated = family.neighbours and source.split(".")[-2] in ("q_proj", "k_proj", "q_norm", "k_norm")
        result[gguf_name(family, source)] = oracle.encode(in_order(tensor) if rotated else tensor, kind)
    if (draft / "mask_embedding.pt").is_file():
        result |= with_mask_row(draft, outtype)
    return result | {made: oracle.encode(tensor, "f32") for made, tensor in family.made.items()}


def in_order(rows: torch.Tensor) -> torch.Tensor:
    """The rows of heads of 32 whose pairs (2i, 2i + 1) become (i, i + 16)."""
    return rows[[row // 32 * 32 + 2 * (row % 16) + row % 32 // 16 for row in range(len(rows))]]


def with_mask_row(draft: Path, outtype: str) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The target's tables, one with the row that lies beside the draft."""
    held = torch.load(draft / "mask_embedding.pt", weights_only=True)
    target = load_file(draft.parent / "target" / "model.safetensors")
    table = target["model.embed_tokens.weight"].clone()
    table[507] = held if isinstance(held, torch.Tensor) else held.get("embedding", held.get("mask_embedding"))
    return {
        "token_embd.weight": oracle.encode(table, outtype),
        "output.weight": oracle.encode(target["lm_head.weight"], outtype),
    }


def unpacked(draft: Path) -> dict[str, torch.Tensor]:
    """The float64 matrices of what is packed, by the name of their codes."""
    sources = load_file(next(draft.glob("*.safetensors")))
    packed = [source.removesuffix("_scale_2") for source in sources if source.endswith("_scale_2")]
    return {source: unpack(source.removesuffix(".weight"), sources) for source in packed}


def gguf_name(family: Family, source: str) -> str:
    if source in family.outside:
        return family.outside[source]
    if source.startswith("layers."):
        _, layer, part = source.split(".", 2)
        if part in family.layer:
            return f"blk.{layer}.{family.layer[part]}"
    return oracle.gguf_name(source)
