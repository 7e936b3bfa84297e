"""What a Gemma4 draft of DeepSpec's (``deepspec/modeling/dspark/gemma4``) says of itself beyond what all say."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_convert.reference.config import Config

GEMMA4 = "Gemma4DSparkModel"

#: what DeepSpec's drafts do without
NOTHING_BESIDE = (
    "attention_bias",
    "enable_moe_block",
    "hidden_size_per_layer_input",
    "dflash_config.use_swa",
    "dflash_config.causal",
    "is_causal",
)


@dataclass(frozen=True)
class Gemma4Facts:
    """``key_is_value``: values are the keys before their norm. ``turning_pairs``: how many of a head's pairs turn."""

    key_is_value: bool
    turning_pairs: int
    rope_theta: float


def read_gemma4(config: Config) -> Gemma4Facts:
    """Raises ValueError for layers that DeepSpec's Gemma4 drafts do not have."""
    for key in NOTHING_BESIDE:
        if config.get(key):
            raise config.wrong(key, "false or 0, which is all that the reference computes", config.get(key))
    if config.flag("use_double_wide_mlp") and config.integer("num_kv_shared_layers", minimum=0, default=0):
        raise config.wrong("use_double_wide_mlp", "false where layers share keys", True)
    if config.get("hidden_activation") not in (None, "gelu_pytorch_tanh"):
        raise config.wrong("hidden_activation", "gelu_pytorch_tanh", config.get("hidden_activation"))
    kinds = config.get("layer_types") or ["full_attention"]
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise config.wrong("layer_types", "full_attention everywhere", kinds)
    pairs, theta = rotation(config)
    return Gemma4Facts(bool(config.flag("attention_k_eq_v")), pairs, theta)


def rotation(config: Config) -> tuple[int, float]:
    """How many pairs of a head turn, and the base.

    "Proportional" are the frequencies of the whole head of which only the first are used: the other pairs stand
    still. All turn without a factor (transformers' ``modeling_rope_utils``); without ``rope_parameters`` it is
    a quarter (its ``Gemma4TextConfig``).
    """
    head_dim = config.integer("global_head_dim")
    if config.get("rope_parameters") is None:
        return head_dim // 8, 1e6
    nested = "rope_parameters.full_attention"
    rope = "rope_parameters" if config.get(nested) is None else nested
    kind, share = config.get(f"{rope}.rope_type"), f"{rope}.partial_rotary_factor"
    if kind not in (None, "default", "proportional"):
        raise config.wrong(f"{rope}.rope_type", "default or proportional", kind)
    if config.get(f"{rope}.factor") not in (None, 1):
        raise config.wrong(f"{rope}.factor", "1, as the reference computes it", config.get(f"{rope}.factor"))
    turning = config.positive(share) if kind == "proportional" and config.get(share) is not None else 1.0
    if turning > 1:
        raise config.wrong(share, "at most 1", turning)
    return int(turning * head_dim // 2), config.positive(f"{rope}.rope_theta")
