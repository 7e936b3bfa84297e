"""The published names of a draft's tensors, in a checkpoint and in a GGUF, side by side.

Written from the trainers' modules (DeepSpec's for Qwen3 and Gemma4, SpecForge's, z-lab's for DFlash2) and from
llama.cpp's dflash loader, apart from ``arch_specs``: the converter's own table cannot be wrong on both sides of a
comparison. Checkpoint names are as the reference spells them (``reference.weights.plain_name``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark_convert.reference.facts import Facts

#: GGUF name -> checkpoint name, outside the layers, of every draft
ENDS = {
    "fc.weight": "fc.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
    "output_norm.weight": "norm.weight",
}

#: the heads of DSpark, all or some of them
HEADS = {
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
    "conf_proj.bias": "confidence_head.proj.bias",
}

#: the selector of DFlash2
SELECTOR = {
    "selector_predecessor.weight": "candidate_selector.predecessor_codebook",
    "selector_successor.weight": "candidate_selector.successor_codebook",
    "selector_hidden.weight": "candidate_selector.hidden_projection.weight",
}

#: the two tables that a draft may borrow from its target
TABLES = {"token_embd.weight": "embed_tokens.weight", "output.weight": "lm_head.weight"}

#: within layer N: blk.N.<left> is layers.N.<right>; what Qwen3's layers and Gemma4's share
SHARED = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
VALUES = {"attn_v.weight": "self_attn.v_proj.weight"}
QWEN3 = {"ffn_norm.weight": "post_attention_layernorm.weight"}
#: norms on both sides of attention and MLP, and a factor a layer
GEMMA4 = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    "layer_output_scale.weight": "layer_scalar",
}
SINKS = {"attn_sinks.weight": "self_attn.attention_sink_bias"}
CONVOLUTIONS = {
    "attn_conv_base": "attention_conv.base_kernel",
    "attn_conv_proj.weight": "attention_conv.kernel_projection.weight",
    "ffn_conv_base": "mlp_conv.base_kernel",
    "ffn_conv_proj.weight": "mlp_conv.kernel_projection.weight",
}

#: matrices that llama.cpp multiplies by a number beside them: x.scale of x.weight
_SCALED = re.compile(
    r"(fc|output|markov_w2|blk\.\d+\.(attn_(q|k|v|output)|ffn_(gate|up|down)))\.weight",
)

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


def checkpoint_name(name: str, *, gemma4: bool = False) -> str | None:
    """What the tensor ``name`` of a GGUF is called in the checkpoint; None if no published draft has it."""
    outside = ENDS | HEADS | TABLES | ({} if gemma4 else SELECTOR)
    if name in outside:
        return outside[name]
    match = _BLOCK.fullmatch(name)
    layer = SHARED | VALUES | (GEMMA4 if gemma4 else QWEN3 | SINKS | CONVOLUTIONS)
    if match is None or match[2] not in layer:
        return None
    return f"layers.{int(match[1])}.{layer[match[2]]}"


def required_names(facts: Facts) -> list[str]:
    """The GGUF names that a file of this draft has to have: all but the tables and the heads."""
    layer = [*SHARED, *(GEMMA4 if facts.gemma4 else QWEN3)]
    if facts.gemma4 is None or not facts.gemma4.key_is_value:
        layer += VALUES
    if facts.has_sinks:
        layer += SINKS
    if facts.dflash2:
        layer += CONVOLUTIONS
    blocks = [f"blk.{index}.{part}" for index in range(facts.n_layer) for part in layer]
    return [*ENDS, *(SELECTOR if facts.dflash2 else ()), *blocks]


def scale_name(name: str) -> str | None:
    """The number that llama.cpp multiplies the product with the matrix ``name`` by, if the file has it."""
    return f"{name.removesuffix('weight')}scale" if _SCALED.fullmatch(name) else None
