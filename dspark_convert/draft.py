"""Draft: what a draft model means, after every spelling of every trainer is resolved.

Everything downstream of ``specs`` (plan, lint, runtime) reads this and never a config.json.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["dspark", "dflash", "dflash2"]
#: how each is called
KINDS = {"dspark": "DSpark", "dflash": "DFlash", "dflash2": "DFlash2"}


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding: ``style`` "neox" pairs (i, i + n_rot/2), "norm" pairs (2i, 2i+1).

    ``dimension_count`` (n_rot) is how many of a head's dimensions rotate; ``freq_base`` is theta;
    ``scaling`` holds the scaling's own fields or is None: ``type`` "linear" with ``factor``; "yarn"
    with ``factor``, ``original_context_length`` and, where they are not the usual ones,
    ``attention_factor``, ``beta_fast``, ``beta_slow``; "proportional" with ``rotated``, the number of
    dimensions that turn, at frequencies of the whole head (Gemma4).
    """

    style: Literal["neox", "norm"]
    dimension_count: int
    freq_base: float
    scaling: dict[str, Any] | None = None


@dataclass(frozen=True)
class DeepSeek4:
    """What a DeepSeek-V4 stage has beside the fields of every draft.

    Queries are compressed to ``q_lora_rank``; the attention's output goes through
    ``o_group_count`` groups of ``o_lora_rank``. ``n_expert`` routed experts of the draft's
    intermediate_size, of which ``n_expert_used`` are taken, and ``n_expert_shared`` that always
    are; the weights of the chosen are divided by their sum if ``expert_weights_norm`` and
    multiplied by ``expert_weights_scale``. ``swiglu_clamp``: limit of gate and up projection.
    ``hyper_connections`` residual streams are mixed by ``sinkhorn_iterations`` rounds with
    ``hyper_connection_epsilon``.
    """

    q_lora_rank: int
    o_group_count: int
    o_lora_rank: int
    n_expert: int
    n_expert_used: int
    n_expert_shared: int
    expert_weights_scale: float
    expert_weights_norm: bool
    swiglu_clamp: float
    hyper_connections: int
    sinkhorn_iterations: int
    hyper_connection_epsilon: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class DFlash2:
    """Convolutions and candidate selector of a DFlash2 draft.

    Before and after attention and feed-forward each slot is mixed with the ``conv_kernel_size`` - 1
    slots before it, with coefficients for every ``conv_group_size`` channels. The selector scores
    pairs of the ``selector_top_k`` best tokens of neighbouring slots by factors of ``selector_rank``.
    """

    conv_kernel_size: int
    conv_group_size: int
    selector_rank: int
    selector_top_k: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Draft:
    """One draft model.

    Sizes are element counts. ``target_layers`` are llama.cpp layer *inputs*: value L is the
    residual stream that enters layer L of the target (a Hugging Face output index i is L = i + 1).
    ``markov_rank`` is 0 and ``markov_head_type`` "none" for a draft without a Markov head.
    ``draft_vocab_size`` below ``vocab_size``: a reduced vocabulary with its own head and a table ``d2t``.
    ``causal``: slots see only slots before them; ``causal_pattern``: per layer, where layers differ (no
    file can say so: ``causal`` is then what is written). ``sliding_window``: a query at p sees keys above
    p - sliding_window, in the layers of ``sliding_window_pattern`` (in all, if that is empty).
    ``attention_scale``: of the scores, None is 1/sqrt(head_dim); ``value_scale``: of the attention's output;
    ``embedding_scale``: of the block's embeddings; ``logit_scale``, then ``logit_softcap``: of the logits.
    ``shared_kv``: values are the keys before norm and rotation, normed without a weight.
    ``has_mask_row``: its embeddings are the target's but for the mask token's row, which is the draft's own.
    ``origin`` says per field where its value came from ("config.json: dflash_config.block_size").
    """

    kind: Kind
    backbone: str
    block_size: int
    sample_from_anchor: bool
    target_layers: tuple[int, ...]
    mask_token_id: int
    markov_rank: int
    markov_head_type: str
    has_confidence_head: bool
    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    intermediate_size: int
    n_layer: int
    n_head: int
    n_head_kv: int
    head_dim: int
    context_length: int
    rms_norm_eps: float
    rope: Rope
    causal: bool = False
    sliding_window: int | None = None
    sliding_window_pattern: tuple[bool, ...] = ()
    causal_pattern: tuple[bool, ...] = ()
    hidden_act: Literal["silu", "gelu"] = "silu"
    attention_scale: float | None = None
    value_scale: float | None = None
    embedding_scale: float | None = None
    logit_scale: float | None = None
    logit_softcap: float | None = None
    shared_kv: bool = False
    dflash2: DFlash2 | None = None
    has_token_embd: bool = False
    has_output: bool = False
    has_sinks: bool = False
    has_mask_row: bool = False
    deepseek4: DeepSeek4 | None = None
    origin: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def drafts_per_block(self) -> int:
        """Tokens proposed a round: block_size if slot 0 predicts, else block_size - 1."""
        return self.block_size if self.sample_from_anchor else self.block_size - 1

    def to_json(self) -> dict[str, Any]:
        """The ``draft`` object of the JSON outputs."""
        return {
            "kind": self.kind,
            "backbone": self.backbone,
            "block_size": self.block_size,
            "drafts_per_block": self.drafts_per_block,
            "sample_from_anchor": self.sample_from_anchor,
            "target_layers": list(self.target_layers),
            "mask_token_id": self.mask_token_id,
            "markov_rank": self.markov_rank,
            "markov_head_type": self.markov_head_type,
            "has_confidence_head": self.has_confidence_head,
            "vocab_size": self.vocab_size,
            "draft_vocab_size": self.draft_vocab_size,
            "hidden_size": self.hidden_size,
            "layers": self.n_layer,
            "heads": self.n_head,
            "kv_heads": self.n_head_kv,
            "head_dim": self.head_dim,
            "feed_forward": self.intermediate_size,
            "context_length": self.context_length,
            "rms_norm_eps": self.rms_norm_eps,
            "causal": self.causal,
            "sliding_window": self.sliding_window,
            "sliding_window_pattern": list(self.sliding_window_pattern),
            "causal_pattern": list(self.causal_pattern),
            "sinks": self.has_sinks,
            "hidden_act": self.hidden_act,
            "attention_scale": self.attention_scale,
            "value_scale": self.value_scale,
            "embedding_scale": self.embedding_scale,
            "logit_scale": self.logit_scale,
            "logit_softcap": self.logit_softcap,
            "shared_kv": self.shared_kv,
            "dflash2": self.dflash2.to_json() if self.dflash2 else None,
            "deepseek4": self.deepseek4.to_json() if self.deepseek4 else None,
            "rope": {
                "style": self.rope.style,
                "dimension_count": self.rope.dimension_count,
                "freq_base": self.rope.freq_base,
                "scaling": self.rope.scaling,
            },
            "shared_tensors": {"token_embd": self.has_token_embd, "output": self.has_output},
        }
