"""The published names of a DeepSeek-V4 draft's tensors, in a checkpoint and in a GGUF, side by side.

Written from DeepSeek's inference code (class ``DSparkBlock`` and what it is built of) and from llama.cpp's
dflash loader, apart from ``arch_specs``. What a stage holds for the whole draft goes by its name without the
stage; the two tables are called as in other drafts.
"""

from __future__ import annotations

import re

#: GGUF name -> checkpoint name, outside the stages
HEADS = {
    "fc.weight": "main_proj.weight",
    "enc.output_norm.weight": "main_norm.weight",
    "output_norm.weight": "norm.weight",
    "output_hc_fn.weight": "hc_head_fn",
    "output_hc_base.weight": "hc_head_base",
    "output_hc_scale.weight": "hc_head_scale",
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
    "conf_proj.bias": "confidence_head.proj.bias",
}

#: the same within stage N: blk.N.<left> is mtp.N.<right>
STAGE = {
    "attn_norm.weight": "attn_norm.weight",
    "attn_q_a.weight": "attn.wq_a.weight",
    "attn_q_a_norm.weight": "attn.q_norm.weight",
    "attn_q_b.weight": "attn.wq_b.weight",
    "attn_kv.weight": "attn.wkv.weight",
    "attn_kv_a_norm.weight": "attn.kv_norm.weight",
    "attn_sinks.weight": "attn.attn_sink",
    "attn_output_a.weight": "attn.wo_a.weight",
    "attn_output_b.weight": "attn.wo_b.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "ffn_gate_inp.weight": "ffn.gate.weight",
    "exp_probs_b.bias": "ffn.gate.bias",
    "ffn_gate_shexp.weight": "ffn.shared_experts.w1.weight",
    "ffn_down_shexp.weight": "ffn.shared_experts.w2.weight",
    "ffn_up_shexp.weight": "ffn.shared_experts.w3.weight",
    "hc_attn_fn.weight": "hc_attn_fn",
    "hc_attn_base.weight": "hc_attn_base",
    "hc_attn_scale.weight": "hc_attn_scale",
    "hc_ffn_fn.weight": "hc_ffn_fn",
    "hc_ffn_base.weight": "hc_ffn_base",
    "hc_ffn_scale.weight": "hc_ffn_scale",
}

#: matrices of all experts in one tensor: expert E of blk.N.<left> is mtp.N.ffn.experts.E.<right>
EXPERTS = {
    "ffn_gate_exps.weight": "w1.weight",
    "ffn_down_exps.weight": "w2.weight",
    "ffn_up_exps.weight": "w3.weight",
}

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")


def stage_names(name: str, n_expert: int) -> list[str] | None:
    """What the tensor ``name`` of a GGUF is called in the checkpoint: one name, or one an expert; None if unknown."""
    if name in HEADS:
        return [HEADS[name]]
    match = _BLOCK.fullmatch(name)
    if match is None:
        return None
    stage = f"mtp.{int(match[1])}"
    if match[2] in STAGE:
        return [f"{stage}.{STAGE[match[2]]}"]
    if match[2] in EXPERTS:
        return [f"{stage}.ffn.experts.{expert}.{EXPERTS[match[2]]}" for expert in range(n_expert)]
    return None


def required_stage_names(n_layer: int) -> list[str]:
    """The GGUF names that every draft of ``n_layer`` stages has: all but the tables and the heads."""
    blocks = [f"blk.{index}.{part}" for index in range(n_layer) for part in (*STAGE, *EXPERTS)]
    ends = [name for name in HEADS if not name.startswith(("markov_", "conf_proj."))]
    return [*ends, *blocks]
