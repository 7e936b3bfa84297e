"""What only DeepSeek-V4 stages have, in words."""

from __future__ import annotations

from dspark_convert.draft import DeepSeek4, Draft


def stage_fields(draft: Draft, stage: DeepSeek4) -> list[tuple[str, str]]:
    """Name and text a line."""
    streams = (
        f"{stage.hyper_connections} streams (hyper-connections), {stage.sinkhorn_iterations} rounds of Sinkhorn,"
        f" epsilon {stage.hyper_connection_epsilon:.3g}"
    )
    return [("experts", _experts(stage)), ("projections", _projections(draft, stage)), ("residual", streams)]


def _experts(stage: DeepSeek4) -> str:
    shared = f" and {stage.n_expert_shared} shared" if stage.n_expert_shared else ""
    weights = "normed, " if stage.expert_weights_norm else ""
    return (
        f"{stage.n_expert_used} of {stage.n_expert}{shared}, weights {weights}times {stage.expert_weights_scale:.3g},"
        f" clamped at {stage.swiglu_clamp:.3g}"
    )


def _projections(draft: Draft, stage: DeepSeek4) -> str:
    groups = f"{stage.o_group_count} groups" if stage.o_group_count != 1 else "1 group"
    return (
        f"queries through {stage.q_lora_rank}, keys are the values ({draft.head_dim}),"
        f" output through {groups} of {stage.o_lora_rank}"
    )
