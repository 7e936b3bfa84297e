"""A Draft's meaning as GGUF key/values: the runtime's own keys, and ours beside them.

Names and types of the runtime's keys are those that llama.cpp's ``llama-arch.cpp`` reads for the
architecture ``dflash``. Other layouts are made from these words (``foreign``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dspark_convert import __version__
from dspark_convert.draft import DeepSeek4, Draft
from dspark_convert.ggufio.layers import SCALES
from dspark_convert.ggufio.rotation import YARN, yarn_length
from dspark_convert.ggufio.types import (
    FILE_TYPES,
    KV,
    SQRT_SOFTPLUS,
    GGMLType,
    ValueType,
    array,
    boolean,
    f32,
    string,
    u32,
)
from dspark_convert.source.provenance import Provenance
from dspark_convert.target import Target

ARCHITECTURE = "dflash"


def general(source: Provenance, target: Target | None, matrices: GGMLType) -> list[KV]:
    """``general.*``: what the file is called and what it was made from."""
    kvs = [
        string("general.architecture", ARCHITECTURE),
        string("general.type", "model"),
        string("general.name", source.name),
    ]
    if source.repo:
        kvs.append(string("general.source.url", f"https://huggingface.co/{source.repo}"))
        kvs.append(string("general.source.huggingface.repository", source.repo))
    base = (target.provenance.repo if target else None) or source.base_model
    name = base.split("/")[1] if base else target.provenance.name if target else None
    if name:
        kvs.append(u32("general.base_model.count", 1))
        kvs.append(string("general.base_model.0.name", name))
    if base:
        kvs.append(string("general.base_model.0.organization", base.split("/")[0]))
        kvs.append(string("general.base_model.0.repo_url", f"https://huggingface.co/{base}"))
    if matrices in FILE_TYPES:
        kvs.append(u32("general.file_type", FILE_TYPES[matrices]))
    kvs.append(u32("general.quantization_version", 2))
    return kvs


def runtime(draft: Draft, *, mrope: bool) -> list[KV]:
    """The keys that llama.cpp reads."""

    def key(name: str) -> str:
        return f"{ARCHITECTURE}.{name}"

    stages = draft.deepseek4
    kvs = [
        u32(key("block_count"), draft.n_layer),
        u32(key("context_length"), draft.context_length),
        u32(key("embedding_length"), draft.hidden_size),
        u32(key("expert_feed_forward_length" if stages else "feed_forward_length"), draft.intermediate_size),
        u32(key("attention.head_count"), draft.n_head),
        u32(key("attention.head_count_kv"), draft.n_head_kv),
        f32(key("rope.freq_base"), draft.rope.freq_base),
        f32(key("attention.layer_norm_rms_epsilon"), draft.rms_norm_eps),
        u32(key("attention.key_length"), draft.head_dim),
        u32(key("attention.value_length"), draft.head_dim),
        *(_deepseek4(key, draft, stages) if stages else ()),
        u32(key("block_size"), draft.block_size),
        array(key("target_layers"), ValueType.INT32, list(draft.target_layers)),
        boolean(key("sample_from_anchor"), draft.sample_from_anchor),
        boolean(key("has_confidence_head"), draft.has_confidence_head),
        *(() if stages else _layers(key, draft)),
    ]
    if mrope and not stages:
        # The draft rotates along the text axis alone: one section that holds every pair.
        sections = [draft.rope.dimension_count // 2, 0, 0, 0]
        kvs.append(array(key("rope.dimension_sections"), ValueType.INT32, sections))
    return kvs


def _layers(key: Callable[[str], str], draft: Draft) -> Iterator[KV]:
    """What layers like Qwen3's may have beyond the plain ones; what a draft has not is not written.

    ``attention.causal`` is one flag for all layers. The scale and the cap of the logits are written whatever
    the kind is, though llama.cpp applies them to DFlash2 alone (src/models/dflash.cpp).
    """
    yield from _rotation(key, draft)
    if draft.sliding_window is not None:
        yield u32(key("attention.sliding_window"), draft.sliding_window)
        yield array(key("attention.sliding_window_pattern"), ValueType.BOOL, list(draft.sliding_window_pattern))
    if draft.causal or draft.causal_pattern:
        yield boolean(key("attention.causal"), draft.causal)
    for name, field in SCALES.items():
        if (value := getattr(draft, field)) is not None:
            yield f32(key(name), value)
    if draft.hidden_act == "gelu":
        yield string(key("hidden_activation"), "gelu_pytorch_tanh")
    if draft.dflash2 is not None:
        for name, size in draft.dflash2.to_json().items():
            yield u32(key(name), size)


def _rotation(key: Callable[[str], str], draft: Draft) -> Iterator[KV]:
    """RoPE's keys beyond its base. A proportional one has none: it is a tensor, ``rope_freqs.weight``.

    Of YaRN llama.cpp multiplies angles' lengths by ``attn_factor`` (1 + 0.1 ln factor), and reads none of the
    keys ``yarn_*`` for a draft (src/llama-context.cpp): they say what was trained.
    """
    rope = draft.rope
    if rope.dimension_count != draft.head_dim:
        yield u32(key("rope.dimension_count"), rope.dimension_count)
    scaling = rope.scaling or {}
    if scaling.get("type") not in ("linear", "yarn"):
        return
    yield string(key("rope.scaling.type"), scaling["type"])
    yield f32(key("rope.scaling.factor"), scaling["factor"])
    if "original_context_length" in scaling:
        yield u32(key("rope.scaling.original_context_length"), scaling["original_context_length"])
    if "attention_factor" in scaling:
        yield f32(key("rope.scaling.attn_factor"), scaling["attention_factor"] / yarn_length(scaling["factor"]))
    for name, field in YARN.items():
        if field in scaling:
            yield f32(key(f"rope.scaling.{name}"), scaling[field])


def _deepseek4(key: Callable[[str], str], draft: Draft, stages: DeepSeek4) -> Iterator[KV]:
    """What ``llama_model_dflash::load_arch_hparams`` (src/models/dflash.cpp) reads of a DeepSeek-V4 draft.

    No key speaks of YaRN, compressed attention or an indexer: those are the target's.
    """
    yield u32(key("rope.dimension_count"), draft.rope.dimension_count)
    yield u32(key("attention.q_lora_rank"), stages.q_lora_rank)
    yield u32(key("attention.output_group_count"), stages.o_group_count)
    yield u32(key("attention.output_lora_rank"), stages.o_lora_rank)
    if draft.sliding_window is not None:
        yield u32(key("attention.sliding_window"), draft.sliding_window)
    yield array(key("attention.compress_ratios"), ValueType.INT32, [0] * draft.n_layer)
    yield u32(key("expert_count"), stages.n_expert)
    yield u32(key("expert_used_count"), stages.n_expert_used)
    yield u32(key("expert_shared_count"), stages.n_expert_shared)
    yield u32(key("expert_gating_func"), SQRT_SOFTPLUS)
    yield f32(key("expert_weights_scale"), stages.expert_weights_scale)
    yield boolean(key("expert_weights_norm"), stages.expert_weights_norm)
    for part in ("exp", "shexp"):
        yield array(key(f"swiglu_clamp_{part}"), ValueType.FLOAT32, [stages.swiglu_clamp] * draft.n_layer)
    yield u32(key("hyper_connection.count"), stages.hyper_connections)
    yield u32(key("hyper_connection.sinkhorn_iterations"), stages.sinkhorn_iterations)
    yield f32(key("hyper_connection.epsilon"), stages.hyper_connection_epsilon)


def meaning(draft: Draft, source: Provenance, target: Target | None) -> list[KV]:
    """What the runtime's keys leave out; llama.cpp ignores keys that it does not know."""
    kvs = [
        string("dspark.backbone", draft.backbone),
        u32("dspark.block_size", draft.block_size),
        array("dspark.target_layers", ValueType.INT32, list(draft.target_layers)),
        u32("dspark.mask_token_id", draft.mask_token_id),
        boolean("dspark.sample_from_anchor", draft.sample_from_anchor),
        u32("dspark.markov_rank", draft.markov_rank),
        string("dspark.markov_head_type", draft.markov_head_type),
        boolean("dspark.has_confidence_head", draft.has_confidence_head),
        string("dspark.rope_style", draft.rope.style),
        string("dspark.source", source.repo or source.name),
        string("dspark.converter_version", __version__),
    ]
    if draft.causal_pattern:
        kvs.append(array("dspark.causal_pattern", ValueType.BOOL, list(draft.causal_pattern)))
    if draft.has_mask_row:
        kvs.append(boolean("dspark.mask_row", True))
    scaling = draft.rope.scaling or {}
    if scaling.get("type") == "proportional":
        kvs.append(u32("dspark.rope_rotated", scaling["rotated"]))
    if source.revision:
        kvs.append(string("dspark.revision", source.revision))
    if target:
        kvs.append(string("dspark.target.name", target.provenance.repo or target.provenance.name))
        if target.n_layer:
            kvs.append(u32("dspark.target.block_count", target.n_layer))
    return kvs


def mask(draft: Draft) -> KV:
    """The draft's own, where llama.cpp looks for it."""
    return u32("tokenizer.ggml.mask_token_id", draft.mask_token_id)


def metadata(
    draft: Draft,
    source: Provenance,
    target: Target | None,
    matrices: GGMLType,
    tokenizer: tuple[KV, ...],
) -> tuple[KV, ...]:
    """All key/values of the file in order; a key that two parts write stands once."""
    kvs = [
        *general(source, target, matrices),
        *runtime(draft, mrope=target is not None and target.mrope),
        *meaning(draft, source, target),
        *tokenizer,
        mask(draft),
    ]
    return tuple({kv.key: kv for kv in kvs}.values())
