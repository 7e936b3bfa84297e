"""What a draft GGUF says of DeepSeek-V4 stages, beyond what every draft says.

Names, types and defaults are those that ``llama_model_dflash::load_arch_hparams`` (src/models/dflash.cpp)
reads once there are hyper-connections.
"""

from __future__ import annotations

from typing import Any

from dspark_convert.draft import DeepSeek4
from dspark_convert.findings import info
from dspark_convert.ggufio.keys import Keys
from dspark_convert.ggufio.types import ValueType

FLOATS = (ValueType.FLOAT32,)


def has_stages(keys: Keys) -> bool:
    """Whether llama.cpp builds DeepSeek-V4 stages of this file: it has hyper-connections."""
    count: int | None = keys.number("hyper_connection.count", ValueType.UINT32)
    return bool(count)


def read_stages(keys: Keys) -> DeepSeek4 | None:
    """None if a key is missing or mistyped, which a finding tells."""
    found: dict[str, Any] = {
        "q_lora_rank": keys.number("attention.q_lora_rank", ValueType.UINT32, required=True),
        "o_group_count": keys.number("attention.output_group_count", ValueType.UINT32, required=True),
        "o_lora_rank": keys.number("attention.output_lora_rank", ValueType.UINT32, required=True),
        "n_expert": keys.number("expert_count", ValueType.UINT32, required=True),
        "n_expert_used": keys.size("expert_used_count"),
        "n_expert_shared": keys.number("expert_shared_count", ValueType.UINT32, required=True),
        "expert_weights_scale": keys.number("expert_weights_scale", ValueType.FLOAT32, required=True),
        "expert_weights_norm": keys.number("expert_weights_norm", ValueType.BOOL, required=True),
        "swiglu_clamp": keys.uniform("swiglu_clamp_exp", ValueType.FLOAT32, FLOATS),
        "hyper_connections": keys.number("hyper_connection.count", ValueType.UINT32, required=True),
        "sinkhorn_iterations": keys.number("hyper_connection.sinkhorn_iterations", ValueType.UINT32, required=True),
        "hyper_connection_epsilon": keys.number("hyper_connection.epsilon", ValueType.FLOAT32, required=True),
    }
    keys.uniform("swiglu_clamp_shexp", ValueType.FLOAT32, FLOATS, required=False)
    keys.number("expert_gating_func", ValueType.UINT32, required=True)
    keys.number("attention.sliding_window", ValueType.UINT32, required=True)
    _tell_unread_scaling(keys)
    return None if None in found.values() else DeepSeek4(**found)


def _tell_unread_scaling(keys: Keys) -> None:
    """The target's YaRN belongs to its compressed layers; the stages have none, and llama.cpp turns them plainly."""
    prefix = f"{keys.prefix}.rope.scaling."
    if any(key.startswith(prefix) for key in keys.file.metadata):
        message = "RoPE scaling is stated, which llama.cpp leaves unread here: a DeepSeek-V4 draft rotates unscaled."
        keys.findings.append(info("rope-scaling-unread", f"{prefix}type", message))
