"""The tensors that llama.cpp's dflash loader wants of DeepSeek-V4 stages, with their shapes as formulas.

Sizes: h hidden, H heads of width d, q and o the ranks of the compressed queries and of a group of the
output projection, g such groups, E experts of width f, S shared ones, s residual streams. Shapes are in
ggml order. Source: the DeepSeek-V4 branch of ``llama_model_dflash::load_arch_tensors`` (src/models/dflash.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator

from dspark_convert.draft import DeepSeek4, Draft
from dspark_convert.lint.wanted import Wanted


def stages(draft: Draft, stage: DeepSeek4) -> Iterator[Wanted]:
    """The tensors of all stages, and those that make one of the residual streams behind the last."""
    streams = stage.hyper_connections
    yield Wanted("output_hc_fn.weight", (streams * draft.hidden_size, streams))
    yield Wanted("output_hc_base.weight", (streams,))
    yield Wanted("output_hc_scale.weight", (1,))
    for layer in range(draft.n_layer):
        for part in (_attention, _experts, _streams):
            for name, shape in part(draft, stage).items():
                yield Wanted(f"blk.{layer}.{name}", shape, flat=name == "attn_output_a.weight")


def _attention(draft: Draft, stage: DeepSeek4) -> dict[str, tuple[int, ...]]:
    h, heads, d = draft.hidden_size, draft.n_head, draft.head_dim
    q, o, groups = stage.q_lora_rank, stage.o_lora_rank, stage.o_group_count
    return {
        "attn_norm.weight": (h,),
        "attn_sinks.weight": (heads,),
        "attn_q_a.weight": (h, q),
        "attn_q_a_norm.weight": (q,),
        "attn_q_b.weight": (q, heads * d),
        "attn_kv.weight": (h, d),
        "attn_kv_a_norm.weight": (d,),
        "attn_output_a.weight": (heads * d // max(groups, 1), o, groups),
        "attn_output_b.weight": (groups * o, h),
    }


def _experts(draft: Draft, stage: DeepSeek4) -> dict[str, tuple[int, ...]]:
    h, f, count, shared = draft.hidden_size, draft.intermediate_size, stage.n_expert, stage.n_expert_shared
    return {
        "ffn_norm.weight": (h,),
        "ffn_gate_inp.weight": (h, count),
        "exp_probs_b.bias": (count,),
        "ffn_gate_exps.weight": (h, f, count),
        "ffn_up_exps.weight": (h, f, count),
        "ffn_down_exps.weight": (f, h, count),
        "ffn_gate_shexp.weight": (h, f * shared),
        "ffn_up_shexp.weight": (h, f * shared),
        "ffn_down_shexp.weight": (f * shared, h),
    }


def _streams(draft: Draft, stage: DeepSeek4) -> dict[str, tuple[int, ...]]:
    """Hyper-connections: what a half of the stage reads of each stream, writes back, and mixes."""
    streams = stage.hyper_connections
    mixed = (2 + streams) * streams
    shapes = {"fn": (streams * draft.hidden_size, mixed), "base": (mixed,), "scale": (3,)}
    return {f"hc_{half}_{name}.weight": shape for half in ("attn", "ffn") for name, shape in shapes.items()}
