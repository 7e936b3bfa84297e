"""What a draft GGUF says of layers like Qwen3's: window, causality, scales, activation, DFlash2's parts.

Names, types and defaults are those that ``llama_model_dflash::load_arch_hparams`` (src/models/dflash.cpp)
reads; a scale of 0 is none there.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dspark_convert.draft import DFlash2, Draft, Kind
from dspark_convert.ggufio.keys import INTEGERS, Keys
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.types import ValueType

#: key -> field of Draft
SCALES = {
    "attention.scale": "attention_scale",
    "attention.value_scale": "value_scale",
    "embedding_scale": "embedding_scale",
    "logit_scale": "logit_scale",
    "final_logit_softcapping": "logit_softcap",
}
#: names of the one activation beside SiLU that llama.cpp has for drafts; it computes the tanh form for both
GELU = ("gelu", "gelu_pytorch_tanh")

PATTERN = (ValueType.BOOL, *INTEGERS)


def read_layers(keys: Keys, kind: Kind, *, stages: bool) -> dict[str, Any]:
    """Fields of Draft. Stages of DeepSeek-V4 have a window of their own and nothing else of it."""
    pattern = keys.array(f"{keys.prefix}.attention.sliding_window_pattern", PATTERN) or ()
    found: dict[str, Any] = {
        "causal": keys.number("attention.causal", ValueType.BOOL) or False,
        "sliding_window": keys.number("attention.sliding_window", ValueType.UINT32) or None,
        "sliding_window_pattern": tuple(map(bool, pattern)),
    }
    if stages:
        return found
    found["causal_pattern"] = keys.array("dspark.causal_pattern", (ValueType.BOOL,)) or ()
    for key, field in SCALES.items():
        found[field] = keys.number(key, ValueType.FLOAT32) or None
    found["hidden_act"] = "gelu" if keys.number("hidden_activation", ValueType.STRING) in GELU else "silu"
    found["shared_kv"] = shares_keys(keys.file)
    found["dflash2"] = _dflash2(keys) if kind == "dflash2" else None
    return found


def shares_keys(file: GGUFFile) -> bool:
    """Whether no layer has a value projection: llama.cpp then takes the keys for values."""
    return not any(tensor.name.endswith(".attn_v.weight") for tensor in file.tensors)


def layers_like(draft: Draft) -> str:
    """The backbone that llama.cpp's graph makes of layers whose file names none."""
    return "gemma4" if draft.shared_kv and draft.hidden_act == "gelu" else "unknown"


def _dflash2(keys: Keys) -> DFlash2 | None:
    """None if a key is missing or mistyped, which a finding tells."""
    found = {field.name: keys.number(field.name, ValueType.UINT32, required=True) for field in fields(DFlash2)}
    return None if None in found.values() else DFlash2(**found)
