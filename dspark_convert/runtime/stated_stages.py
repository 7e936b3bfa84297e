"""What a DeepSeek-V4 checkpoint says of its draft, beside what a file may say under llama.cpp's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark_convert.runtime.stated_layers import Row, single

if TYPE_CHECKING:
    from dspark_convert.reference.deepseek4_facts import StageFacts
    from dspark_convert.reference.facts import Facts

#: keys that may give each layer a value of its own
PER_LAYER = frozenset(
    "attention.compress_ratios expert_feed_forward_length expert_used_count swiglu_clamp_exp swiglu_clamp_shexp".split()
)

#: keys that llama.cpp does not read of a draft: they tell of the target's compressed layers
UNREAD = ("rope.scaling.", "attention.indexer.", "attention.compress_rope_freq_base", "hash_layer_count")

#: llama.cpp's number of the square root of softplus among the functions that score experts
SQRT_SOFTPLUS = 4


def stage_rows(facts: Facts, stages: StageFacts) -> list[Row]:
    limit = single(stages.swiglu_limit)
    return [
        ("expert_feed_forward_length", None, facts.intermediate_size),
        ("expert_count", None, stages.n_expert),
        ("expert_used_count", None, stages.n_expert_used),
        ("expert_shared_count", None, stages.n_expert_shared),
        ("expert_gating_func", None, SQRT_SOFTPLUS),
        ("expert_weights_norm", None, stages.expert_weights_norm),
        ("expert_weights_scale", None, single(stages.expert_weights_scale)),
        ("swiglu_clamp_exp", None, limit),
        ("swiglu_clamp_shexp", limit, limit),
        ("attention.q_lora_rank", None, stages.q_lora_rank),
        ("attention.output_group_count", None, stages.o_groups),
        ("attention.output_lora_rank", None, stages.o_lora_rank),
        ("attention.sliding_window", None, stages.window),
        ("attention.compress_ratios", 0, 0),
        ("rope.dimension_count", facts.head_dim, stages.rope_dims),
        ("hidden_activation", "silu", "silu"),
        ("hyper_connection.count", None, stages.copies),
        ("hyper_connection.sinkhorn_iterations", None, stages.sinkhorn_iterations),
        ("hyper_connection.epsilon", None, single(stages.hyper_connection_eps)),
    ]


STAGE_KEYS = frozenset(
    "expert_feed_forward_length expert_count expert_used_count expert_shared_count expert_gating_func"
    " expert_weights_norm expert_weights_scale swiglu_clamp_exp swiglu_clamp_shexp attention.q_lora_rank"
    " attention.output_group_count attention.output_lora_rank attention.compress_ratios hyper_connection.count"
    " hyper_connection.sinkhorn_iterations hyper_connection.epsilon".split()
)


def one_of_all(value: Any, layers: int) -> Any:
    """The value of a list that gives every layer the same one."""
    same = isinstance(value, list) and len(value) == layers and value.count(value[0]) == layers
    return value[0] if same else value
