"""Ways to break the good files of the families, and the rule that has to tell it."""

from __future__ import annotations

import struct

from tests.draft_file import ARRAY, BOOL, F32, HEAD_DIM, HEADS, HIDDEN, I32, RANK, STRING, U32, VOCAB
from tests.family_file import IDS
from tests.lint.breaking import Change, chain, data, drop, put, shape


def scale(name: str, value: float) -> Change:
    return data(name, lambda _count: struct.pack("<f", value))


def beside(name: str) -> Change:
    """A scale for a matrix to which llama.cpp applies none."""
    return chain(shape(f"{name}.scale", "F32", (1,)), scale(f"{name}.scale", 1.0))


def frequencies(*values: float) -> Change:
    return data("rope_freqs.weight", lambda n: struct.pack(f"<{n}f", *values, *[values[-1]] * (n - len(values))))


Q_SCALE = "blk.0.attn_q.scale"

#: family, rule, severity, how to break its good file
FAMILY_CASES: list[tuple[str, str, str, Change]] = [
    ("kimi", "rope-scaling-factor", "error", put(dflash__rope__scaling__factor=None)),
    ("kimi", "rope-scaling-factor", "error", put(dflash__rope__scaling__factor=(F32, 0.0))),
    ("dspark", "rope-scaling-factor", "error", put(dflash__rope__scaling__factor=(F32, float("nan")))),
    ("dspark", "rope-scaling", "error", put(dflash__rope__scaling__type=(STRING, "longrope"))),
    ("kimi", "yarn-context", "warning", put(dflash__rope__scaling__original_context_length=None)),
    ("kimi", "yarn-attention-factor", "error", put(dflash__rope__scaling__attn_factor=None)),
    ("kimi", "yarn-attention-factor", "error", put(dflash__rope__scaling__attn_factor=(F32, 1.5))),
    ("kimi", "yarn-unread", "warning", put(dflash__rope__scaling__yarn_beta_fast=(F32, 16.0))),
    ("kimi", "yarn-unread", "warning", put(dflash__rope__scaling__yarn_log_multiplier=(F32, 1.0))),
    ("mimo", "window-beyond-context", "warning", put(dflash__attention__sliding_window=(U32, 4097))),
    ("mimo", "window-beyond-context", "warning", put(dflash__attention__sliding_window=(U32, 2**31 - 4096 - 33))),
    ("mimo", "window-beyond-context", "error", put(dflash__attention__sliding_window=(U32, 2**31 - 4096 - 32))),
    ("nemotron", "window-beyond-context", "error", put(dflash__attention__sliding_window=(U32, 2**31))),
    ("gemma4", "rope-frequencies", "error", frequencies(1.0, 0.0, 1e30)),
    ("gemma4", "rope-frequencies", "error", frequencies(-1.0, 1.0, 1e30)),
    ("gemma4", "rope-frequencies", "warning", frequencies(1.0, 8.0, 1e30)),
    ("gemma4", "meaning-disagrees", "error", frequencies(1.0, 1e30)),
    (
        "gemma4",
        "tensor-shape",
        "error",
        chain(shape("rope_freqs.weight", None, (HEAD_DIM,)), frequencies(1.0, 1.0, 1e30)),
    ),
    (
        "gemma4",
        "rope-frequencies-unread",
        "error",
        put(dflash__rope__dimension_sections=(ARRAY, [HEAD_DIM // 2, 0, 0, 0], I32)),
    ),
    ("gemma4", "activation", "error", put(dflash__hidden_activation=(STRING, "relu"))),
    ("gemma4", "scale-value", "error", put(dflash__embedding_scale=(F32, float("inf")))),
    ("gemma4", "scale-value", "error", put(dflash__attention__scale=(F32, -1.0))),
    ("gemma4", "logits-unscaled", "warning", put(dflash__final_logit_softcapping=(F32, 30.0))),
    ("gemma4", "layers-differ", "warning", drop("blk.1.layer_output_scale.weight")),
    ("gemma4", "layers-differ", "warning", drop("blk.0.post_ffw_norm.weight")),
    ("gemma4", "tensor-shape", "error", shape("blk.0.layer_output_scale.weight", None, (HIDDEN,))),
    ("dflash", "logits-unscaled", "info", put(dflash__logit_scale=(F32, 0.5))),
    ("gemma4", "value-width", "error", put(dflash__attention__value_length=(U32, HEAD_DIM * 2))),
    ("dspark", "values-missing", "error", drop("blk.1.attn_v.weight")),
    ("mimo", "scale-value", "error", put(dflash__attention__value_scale=(F32, float("nan")))),
    ("mimo", "layers-differ", "warning", drop("blk.0.attn_sinks.weight")),
    ("mimo", "vector-type", "error", shape("blk.0.attn_sinks.weight", "BF16", (HEADS,))),
    ("mimo", "tensor-shape", "error", shape("blk.0.attn_sinks.weight", None, (HEADS * 2,))),
    ("dspark", "rope-partial", "warning", put(dflash__rope__dimension_count=(U32, HEAD_DIM // 2))),
    ("mimo", "rope-dimensions", "error", put(dflash__rope__dimension_count=(U32, 5))),
    ("speculators-dflash", "causal-pattern-length", "error", put(dspark__causal_pattern=(ARRAY, [True], BOOL))),
    ("speculators-dflash", "meaning-disagrees", "error", put(dspark__causal_pattern=(ARRAY, [True, True], BOOL))),
    ("speculators-dspark", "causal-mixed", "warning", put(dspark__causal_pattern=(ARRAY, [True, False], BOOL))),
    ("speculators-dspark", "d2t-missing", "error", drop("d2t")),
    ("speculators-dflash", "d2t-missing", "error", drop("d2t")),
    ("speculators-dspark", "tensor-shape", "error", shape("markov_w2.weight", None, (RANK, VOCAB))),
    ("speculators-dspark", "tensor-shape", "error", shape("output.weight", None, (HIDDEN, VOCAB))),
    (
        "speculators-dspark",
        "d2t-range",
        "error",
        data("d2t", lambda count: struct.pack(f"<{count}q", *[*IDS][:-1], VOCAB)),
    ),
    ("nemotron", "nvfp4-scale", "error", drop(Q_SCALE)),
    ("nemotron", "scale-value", "error", scale(Q_SCALE, 0.0)),
    ("nemotron", "scale-value", "error", scale(Q_SCALE, -0.5)),
    ("nemotron", "vector-type", "error", shape(Q_SCALE, "BF16", (1,))),
    ("nemotron", "tensor-shape", "error", chain(shape(Q_SCALE, None, (2,)), data(Q_SCALE, lambda n: b"\1" * 4 * n))),
    ("nemotron", "tensor-unexpected", "error", shape("blk.0.attn_gate.scale", "F32", (1,))),
    (
        "nemotron",
        "scale-unapplied",
        "error",
        chain(shape("markov_w1.scale", "F32", (1,)), scale("markov_w1.scale", 1.0)),
    ),
    ("mimo", "scale-unapplied", "error", beside("output")),
    ("dspark", "nvfp4-scale", "warning", shape("fc.weight", "NVFP4", (3 * HIDDEN, HIDDEN))),
    ("dspark", "file-type", "warning", put(general__file_type=(U32, 39))),
    ("dflash2", "key-missing", "error", put(dflash__conv_kernel_size=None)),
    ("dflash2", "key-missing", "error", put(dflash__block_size=None)),
    ("dflash", "key-default", "warning", put(dflash__block_size=None, dspark__block_size=None)),
    ("dflash2", "selector-sizes", "error", put(dflash__selector_top_k=(U32, 8))),
    ("dflash2", "tensor-shape", "error", put(dflash__conv_group_size=(U32, 8))),
    ("dflash2", "tensor-shape", "error", put(dflash__selector_rank=(U32, 16))),
    ("dflash2", "tensor-missing", "error", drop("blk.1.ffn_conv_base")),
    ("dflash2", "vector-type", "error", shape("blk.1.ffn_conv_base", "F16", (HIDDEN, 3, 2))),
    ("dflash", "selector-missing", "error", put(dflash__selector_top_k=(U32, 7))),
]
