"""Ways to break the good DeepSeek-V4 draft, and the rule that each breaks."""

from __future__ import annotations

from tests.draft_file import ARRAY, BOOL, F32, I32, STRING, U32, DraftFile
from tests.lint.breaking import Change, chain, data, drop, put, shape
from tests.stage_file import SMALL

H, F, E = SMALL.hidden, SMALL.width, SMALL.experts


def rename(old: str, new: str) -> Change:
    def change(file: DraftFile) -> None:
        file.tensors = {new if name == old else name: entry for name, entry in file.tensors.items()}

    return change


def bare_sinks(file: DraftFile) -> None:
    for layer in range(SMALL.layers):
        rename(f"blk.{layer}.attn_sinks.weight", f"blk.{layer}.attn_sinks")(file)


#: rule, severity, how to break the good file
STAGE_CASES: list[tuple[str, str, Change]] = [
    *(
        ("key-missing", "error", put(**{f"dflash__{key.replace('.', '__')}": None}))
        for key in (
            "attention.q_lora_rank",
            "attention.output_group_count",
            "attention.output_lora_rank",
            "attention.sliding_window",
            "expert_count",
            "expert_used_count",
            "expert_feed_forward_length",
            "expert_gating_func",
            "expert_shared_count",
            "expert_weights_scale",
            "expert_weights_norm",
            "swiglu_clamp_exp",
            "hyper_connection.sinkhorn_iterations",
            "hyper_connection.epsilon",
        )
    ),
    ("key-type", "error", put(dflash__expert_weights_norm=(U32, 1))),
    ("key-type", "error", put(dflash__swiglu_clamp_exp=(ARRAY, [10, 10, 10], I32))),
    ("key-per-layer", "error", put(dflash__swiglu_clamp_exp=(ARRAY, [10.0, 10.0, 9.0], F32))),
    ("key-per-layer", "error", put(dflash__expert_used_count=(ARRAY, [2, 2], I32))),
    ("file-type", "warning", put(general__file_type=(U32, 0))),
    ("file-type", "warning", put(general__file_type=(U32, 1))),
    ("rope-style", "error", put(dspark__rope_style=(STRING, "neox"))),
    ("meaning-disagrees", "error", put(dspark__backbone=(STRING, "qwen3"))),
    ("rope-sections", "error", put(dflash__rope__dimension_sections=(ARRAY, [8, 0, 0, 0], I32))),
    ("rope-scaling-unread", "info", put(dflash__rope__scaling__type=(STRING, "yarn"))),
    ("expert-counts", "error", put(dflash__expert_used_count=(U32, 0))),
    ("expert-counts", "error", put(dflash__expert_used_count=(U32, 5))),
    ("expert-counts", "error", put(dflash__expert_count=(U32, 0))),
    ("expert-counts", "error", put(dflash__expert_count=(U32, 1025))),
    ("expert-counts", "error", put(dflash__expert_shared_count=(U32, 0))),
    ("expert-scoring", "error", put(dflash__expert_gating_func=(U32, 2))),
    ("expert-scale", "error", put(dflash__expert_weights_scale=(F32, 0.0))),
    ("expert-scale", "error", put(dflash__expert_weights_scale=(F32, float("nan")))),
    ("window-beyond-context", "error", put(dflash__attention__sliding_window=(U32, 2**31))),
    ("window-missing", "error", put(dflash__attention__sliding_window=(U32, 0))),
    ("key-heads", "error", put(dflash__attention__head_count_kv=None)),
    ("key-heads", "error", put(dflash__attention__head_count_kv=(U32, 4))),
    ("value-width", "error", put(dflash__attention__value_length=(U32, 16))),
    ("value-width", "error", put(dflash__attention__value_length=None)),
    ("output-groups", "error", put(dflash__attention__output_group_count=(U32, 0))),
    ("output-groups", "error", put(dflash__attention__output_group_count=(U32, 3))),
    ("lora-rank", "error", put(dflash__attention__q_lora_rank=(U32, 0))),
    ("lora-rank", "error", put(dflash__attention__output_lora_rank=(U32, 0))),
    ("compress-ratios", "error", put(dflash__attention__compress_ratios=(ARRAY, [0, 0, 4], I32))),
    ("hyper-connections", "error", put(dflash__hyper_connection__count=(U32, 3))),
    ("sinkhorn-iterations", "error", put(dflash__hyper_connection__sinkhorn_iterations=(U32, 0))),
    ("sinkhorn-iterations", "error", put(dflash__hyper_connection__sinkhorn_iterations=(U32, 2**32 - 1))),
    ("hyper-connection-epsilon", "error", put(dflash__hyper_connection__epsilon=(F32, 0.0))),
    ("hyper-connection-epsilon", "error", put(dflash__hyper_connection__epsilon=(F32, float("nan")))),
    (
        "swiglu-clamp",
        "warning",
        put(
            dflash__swiglu_clamp_exp=(ARRAY, [0.0] * 3, F32),
            dflash__swiglu_clamp_shexp=(ARRAY, [0.0] * 3, F32),
        ),
    ),
    ("swiglu-clamp", "warning", put(dflash__swiglu_clamp_shexp=(ARRAY, [7.0, 7.0, 7.0], F32))),
    ("key-per-layer", "error", put(dflash__swiglu_clamp_shexp=(ARRAY, [10.0, 7.0, 10.0], F32))),
    ("key-per-layer", "error", put(dflash__swiglu_clamp_shexp=(ARRAY, [10.0, 10.0], F32))),
    ("list-too-long", "error", put(dflash__swiglu_clamp_shexp=(ARRAY, [10.0] * 100_000, F32))),
    ("compress-ratios", "error", put(dflash__attention__compress_ratios=(ARRAY, [0] * 100_000, U32))),
    ("swiglu-clamp", "warning", put(dflash__swiglu_clamp_shexp=(F32, 7.0))),
    ("heads-bf16", "info", shape("markov_w2.weight", "BF16", (SMALL.rank, SMALL.vocab))),
    ("embedding-length-out", "error", put(dflash__embedding_length_out=(U32, 4 * H))),
    *(
        ("tensor-missing", "error", drop(name))
        for name in (
            "blk.1.attn_sinks.weight",
            "blk.2.exp_probs_b.bias",
            "blk.0.ffn_down_shexp.weight",
            "blk.0.hc_ffn_scale.weight",
            "blk.1.ffn_up_exps.weight",
            "blk.2.attn_kv_a_norm.weight",
            "output_hc_fn.weight",
            "enc.output_norm.weight",
        )
    ),
    (
        "tensor-missing",
        "error",
        put(dflash__block_count=(U32, 4), dflash__swiglu_clamp_exp=(F32, 10.0), dflash__swiglu_clamp_shexp=None),
    ),
    ("sinks-name", "error", bare_sinks),
    ("tensor-unexpected", "error", shape("blk.0.attn_q.weight", "F32", (H, H))),
    ("tensor-unexpected", "error", shape("blk.0.exp_probs_b_vl.bias", "F32", (E,))),
    ("tensor-unexpected", "error", shape("rope_freqs.weight", "F32", (16,))),
    ("scale-unapplied", "error", shape("blk.0.ffn_up_exps.scale", "F32", (E,))),
    ("scale-unapplied", "error", shape("blk.0.attn_q_a.scale", "F32", (1,))),
    ("tensor-shape", "error", shape("blk.0.ffn_up_exps.weight", None, (H, F, E - 1))),
    ("tensor-shape", "error", shape("blk.0.ffn_down_exps.weight", None, (F, H, E + 1))),
    ("tensor-shape", "error", shape("blk.2.hc_attn_fn.weight", None, (4 * H, 4))),
    ("tensor-shape", "error", shape("output_hc_base.weight", None, (24,))),
    ("tensor-shape", "error", shape("blk.1.attn_kv.weight", None, (H, 2 * SMALL.head_dim))),
    ("tensor-shape", "warning", shape("blk.1.attn_output_a.weight", None, (128, 32))),
    ("broken-block", "error", shape("blk.1.ffn_up_exps.weight", None, (H - 1, F, E))),
    ("vector-type", "error", shape("blk.1.hc_attn_base.weight", "BF16", (24,))),
    ("vector-type", "error", shape("blk.1.attn_q_a_norm.weight", "BF16", (SMALL.q_rank,))),
    (
        "non-finite-values",
        "error",
        data("blk.1.ffn_up_exps.weight", lambda n: (b"\x7f" + b"\1" * 16) * (n // 32 - 1) + b"\xff" * 17),
    ),
    ("non-finite-values", "error", data("blk.2.attn_q_b.weight", lambda n: (b"\0\x7e" + b"\1" * 32) * (n // 32))),
    ("all-zero", "warning", data("blk.0.ffn_gate_exps.weight", lambda n: bytes(n // 32 * 17))),
    (
        "all-zero",
        "warning",
        data("blk.0.ffn_gate_exps.weight", lambda n: b"\x7f" * (n // 32 * 17 // 4 * 3) + bytes(n // 32 * 17 // 4)),
    ),
    (
        "vocabulary-missing",
        "error",
        chain(
            put(
                tokenizer__ggml__tokens=None,
                tokenizer__ggml__token_type=None,
                tokenizer__ggml__model=(STRING, "no_vocab"),
                dflash__vocab_size=(U32, SMALL.vocab),
            ),
        ),
    ),
    ("confidence-flag", "warning", put(dflash__has_confidence_head=(BOOL, False))),
    (
        "d2t-stages",
        "error",
        chain(
            shape("d2t", "I64", (8,)),
            shape("output.weight", "F32", (SMALL.hidden, 8)),
            shape("markov_w2.weight", "F32", (SMALL.rank, 8)),
        ),
    ),
]
