"""What a DeepSeek-V4 checkpoint says of the DSpark stages (``mtp.*``) that it holds beside the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dspark_convert.reference.config import Config
from dspark_convert.reference.weights import Shape

#: without V4.1's (``DeepseekV41ForCausalLM``), whose stages are other ones
DEEPSEEK4 = "DeepseekV4ForCausalLM"


@dataclass(frozen=True)
class StageFacts:
    """What a stage has beside what every draft has. ``window`` counts target positions.

    ``tile`` is the side of the squares that share an FP8 scale.
    """

    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    rope_dims: int
    window: int
    n_expert: int
    n_expert_used: int
    n_expert_shared: int
    expert_weights_norm: bool
    expert_weights_scale: float
    swiglu_limit: float
    copies: int
    sinkhorn_iterations: int
    hyper_connection_eps: float
    tile: int


def read_stages(config: Config) -> StageFacts:
    """Raises ValueError for what the reference cannot compute."""
    for key, known in (("scoring_func", "sqrtsoftplus"), ("hidden_act", "silu"), ("topk_method", "noaux_tc")):
        if config.get(key) not in (None, known):
            raise config.wrong(key, f"{known}, which is all that the reference computes", config.get(key))
    sides = config.integers("quantization_config.weight_block_size")
    if sides is None or len(sides) != 2 or sides[0] != sides[1] or sides[0] < 1:
        raise config.wrong("quantization_config.weight_block_size", "two equal sizes", sides and list(sides))
    facts = StageFacts(
        q_lora_rank=config.integer("q_lora_rank"),
        o_groups=config.integer("o_groups"),
        o_lora_rank=config.integer("o_lora_rank"),
        rope_dims=config.integer("qk_rope_head_dim"),
        window=config.integer("sliding_window"),
        n_expert=config.integer("n_routed_experts"),
        n_expert_used=config.integer("num_experts_per_tok"),
        n_expert_shared=config.integer("n_shared_experts"),
        expert_weights_norm=config.flag("norm_topk_prob") is not False,
        expert_weights_scale=config.positive("routed_scaling_factor"),
        swiglu_limit=config.positive("swiglu_limit"),
        copies=config.integer("hc_mult"),
        sinkhorn_iterations=config.integer("hc_sinkhorn_iters"),
        hyper_connection_eps=config.positive("hc_eps"),
        tile=sides[0],
    )
    heads, d = config.integer("num_attention_heads"), config.integer("head_dim")
    if heads % facts.o_groups or facts.rope_dims % 2 or facts.rope_dims > d or facts.n_expert_used > facts.n_expert:
        raise ValueError(
            f"{config.path}: {heads} heads of {d} numbers in {facts.o_groups} groups, {facts.rope_dims} of which"
            f" rotate, and {facts.n_expert_used} of {facts.n_expert} experts do not fit together."
        )
    if config.integer("num_key_value_heads", default=1) != 1:
        raise config.wrong("num_key_value_heads", "1, shared by all heads", config.get("num_key_value_heads"))
    return facts


def count_stages(config: Config, shapes: Mapping[str, Shape]) -> int:
    """By the tensors: ``num_nextn_predict_layers`` does not count DSpark's stages."""
    stages = {int(name.split(".")[1]) for name in shapes if name.startswith("mtp.")}
    if not stages or stages != set(range(len(stages))):
        raise ValueError(f"{config.path.parent} holds the stages {sorted(stages)}; DSpark's count from 0.")
    return len(stages)


def stage_shapes(index: int, hidden: int, heads: int, d: int, width: int, facts: StageFacts) -> dict[str, Shape]:
    """The tensors of one stage, their values' shapes; ``d`` numbers a head, ``width`` of an expert."""
    mixes, flat = (2 + facts.copies) * facts.copies, facts.copies * hidden
    shapes: dict[str, Shape] = {
        "attn.attn_sink": (heads,),
        "attn.kv_norm.weight": (d,),
        "attn.q_norm.weight": (facts.q_lora_rank,),
        "attn.wkv.weight": (d, hidden),
        "attn.wo_a.weight": (facts.o_groups * facts.o_lora_rank, heads * d // facts.o_groups),
        "attn.wo_b.weight": (hidden, facts.o_groups * facts.o_lora_rank),
        "attn.wq_a.weight": (facts.q_lora_rank, hidden),
        "attn.wq_b.weight": (heads * d, facts.q_lora_rank),
        "attn_norm.weight": (hidden,),
        "ffn.gate.weight": (facts.n_expert, hidden),
        "ffn.gate.bias": (facts.n_expert,),
        "ffn_norm.weight": (hidden,),
    }
    for part in ("attn", "ffn"):
        shapes |= {f"hc_{part}_base": (mixes,), f"hc_{part}_fn": (mixes, flat), f"hc_{part}_scale": (3,)}
    experts = {f"experts.{i}": width for i in range(facts.n_expert)}
    for name, size in {**experts, "shared_experts": width * facts.n_expert_shared}.items():
        for matrix in ("w1", "w3"):
            shapes[f"ffn.{name}.{matrix}.weight"] = (size, hidden)
        shapes[f"ffn.{name}.w2.weight"] = (hidden, size)
    return {f"mtp.{index}.{name}": shape for name, shape in shapes.items()}
