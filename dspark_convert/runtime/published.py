"""The published names of a DSpark draft's tensors, in a checkpoint and in a GGUF, side by side.

Written from DeepSpec's modules and from llama.cpp's dflash loader, apart from ``arch_specs``: the
converter's own table cannot be wrong on both sides of a comparison.
"""

from __future__ import annotations

import re

#: GGUF name -> checkpoint name, outside the layers
HEADS = {
    "fc.weight": "fc.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
    "output_norm.weight": "norm.weight",
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
    "conf_proj.bias": "confidence_head.proj.bias",
}

#: the two tables that a draft may borrow from its target
TABLES = {"token_embd.weight": "embed_tokens.weight", "output.weight": "lm_head.weight"}

#: the same within layer N: blk.N.<left>.weight is layers.N.<right>.weight
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


def checkpoint_name(name: str) -> str | None:
    """What the tensor ``name`` of a GGUF is called in the checkpoint; None if no published draft has it."""
    if (known := HEADS.get(name) or TABLES.get(name)) is not None:
        return known
    match = _BLOCK.fullmatch(name)
    if match is None or match[2] not in LAYER:
        return None
    return f"layers.{int(match[1])}.{LAYER[match[2]]}.weight"


def required_names(n_layer: int) -> list[str]:
    """The GGUF names that every draft of ``n_layer`` layers has: all but the tables and the heads."""
    blocks = [f"blk.{index}.{part}.weight" for index in range(n_layer) for part in LAYER]
    return ["fc.weight", "enc.output_norm.weight", "output_norm.weight", *blocks]
