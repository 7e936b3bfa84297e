"""Rules over what only DeepSeek-V4 stages have: experts, compressed queries, hyper-connections.

Most of them are assertions of llama.cpp, which end its process (src/models/dflash.cpp and deepseek4.cpp,
src/llama-model.cpp, ``ggml_dsv4_hc_comb``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from dspark_convert.draft import DeepSeek4, Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.types import MAX_EXPERTS, MAX_LAYERS, SQRT_SOFTPLUS, GGMLType
from dspark_convert.lint.fixes import CORRECT
from dspark_convert.words import shown

#: residual streams that ggml mixes
STREAMS = 4
#: a Sinkhorn iteration is a loop over nothing new after a few dozens
MAX_ITERATIONS = 1000
#: a limit of gate and up projection that is not above this is none to llama.cpp
NO_CLAMP = 1e-6

#: the matrices at a draft's end
HEADS = ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight")


def check_stages(file: GGUFFile, draft: Draft, stage: DeepSeek4) -> Iterator[Finding]:
    yield from _experts(file, stage)
    yield from _attention(file, draft, stage)
    yield from _streams(stage)
    yield from _clamps(file, stage)
    yield from _head_types(file)


def _experts(file: GGUFFile, stage: DeepSeek4) -> Iterator[Finding]:
    count, used = stage.n_expert, stage.n_expert_used
    if not 0 < used <= count <= MAX_EXPERTS:
        message = f"{used} of {count} experts are used; 1 to all of at most {MAX_EXPERTS:,} make sense."
        yield error("expert-counts", "expert_used_count", message, CORRECT)
    if stage.n_expert_shared < 1:
        message = "there is no shared expert, which llama.cpp takes every DeepSeek-V4 stage to have."
        yield error("expert-counts", "expert_shared_count", message, CORRECT)
    scoring = _value(file, "expert_gating_func")
    if scoring not in (None, SQRT_SOFTPLUS):
        message = f"experts are scored by function {shown(scoring)}; llama.cpp takes {SQRT_SOFTPLUS} (sqrt-softplus)."
        yield error("expert-scoring", "expert_gating_func", message, CORRECT)
    if not (isfinite(stage.expert_weights_scale) and stage.expert_weights_scale > 0):
        message = f"the experts' weights are multiplied by {stage.expert_weights_scale:g}; 1.5 and 2.5 are published."
        yield error("expert-scale", "expert_weights_scale", message, CORRECT)


def _attention(file: GGUFFile, draft: Draft, stage: DeepSeek4) -> Iterator[Finding]:
    if _value(file, "attention.sliding_window") == 0:
        message = "there is no sliding window, without which llama.cpp aborts: stages see the last tokens only."
        yield error("window-missing", "attention.sliding_window", message, CORRECT)
    if draft.n_head_kv != 1:
        message = f"{draft.n_head_kv} key/value heads are stated; a DeepSeek-V4 stage has one for all queries."
        yield error("key-heads", "attention.head_count_kv", message, CORRECT)
    values = _value(file, "attention.value_length", draft.hidden_size // max(draft.n_head, 1))
    if values != draft.head_dim:
        message = (
            f"values are {shown(values)} wide and keys {draft.head_dim}; they are one vector, and llama.cpp aborts."
        )
        yield error("value-width", "attention.value_length", message, CORRECT)
    sections = _value(file, "rope.dimension_sections", ())
    if sections and (not isinstance(sections, Sequence) or any(sections)):
        message = f"RoPE sections are {shown(sections)}, with which llama.cpp turns NeoX pairs; stages have others."
        yield error("rope-sections", "rope.dimension_sections", message, CORRECT)
    groups = stage.o_group_count
    if not groups or draft.n_head % groups:
        message = f"{draft.n_head} heads cannot be parted into {groups} groups of equal size; llama.cpp aborts."
        yield error("output-groups", "attention.output_group_count", message, CORRECT)
    for name, rank in (("q_lora_rank", stage.q_lora_rank), ("output_lora_rank", stage.o_lora_rank)):
        if not rank:
            yield error("lora-rank", f"attention.{name}", "the rank is 0: nothing would pass through.", CORRECT)
    ratios = _value(file, "attention.compress_ratios", ())
    if not isinstance(ratios, list):
        return  # a single number is not read
    if any(ratios[: draft.n_layer]) or len(ratios) > MAX_LAYERS:
        message = f"the compression ratios are {shown(ratios)}; a 0 a stage is what llama.cpp takes."
        yield error("compress-ratios", "attention.compress_ratios", message, CORRECT)


def _streams(stage: DeepSeek4) -> Iterator[Finding]:
    if stage.hyper_connections != STREAMS:
        message = f"{stage.hyper_connections} residual streams are stated; llama.cpp mixes {STREAMS} and aborts else."
        yield error("hyper-connections", "hyper_connection.count", message, CORRECT)
    if not 0 < stage.sinkhorn_iterations <= MAX_ITERATIONS:
        message = f"{stage.sinkhorn_iterations} rounds of Sinkhorn are stated; 20 are published, and 0 aborts."
        yield error("sinkhorn-iterations", "hyper_connection.sinkhorn_iterations", message, CORRECT)
    if not 0 < stage.hyper_connection_epsilon < 1e-2:
        message = f"the epsilon of the streams' mixing is {stage.hyper_connection_epsilon:g}; 1e-6 is published."
        yield error("hyper-connection-epsilon", "hyper_connection.epsilon", message, CORRECT)


def _clamps(file: GGUFFile, stage: DeepSeek4) -> Iterator[Finding]:
    """Experts and shared expert have one limit in every published model."""
    limit = stage.swiglu_clamp
    if not limit > NO_CLAMP:
        message = f"the experts' limit is {limit:g}, which llama.cpp takes for none; 10 is published."
        yield warning("swiglu-clamp", "swiglu_clamp_exp", message, CORRECT)
    shared = _value(file, "swiglu_clamp_shexp", limit)
    if isinstance(shared, list):
        shared = shared[0] if shared else limit  # of others the dialect told
    if shared != limit:
        message = f"the shared expert's limit is {shown(shared)}, that of the others {limit:g}."
        yield warning("swiglu-clamp", "swiglu_clamp_shexp", message, CORRECT)


def _head_types(file: GGUFFile) -> Iterator[Finding]:
    found = [tensor for name in HEADS if (tensor := file.tensor(name)) is not None and tensor.type is GGMLType.BF16]
    if found:
        message = "the heads are BF16, which llama.cpp takes; ds4, another engine, reads F32, F16 and Q8_0 ones only."
        yield info("heads-bf16", found[0].name, message)


def _value(file: GGUFFile, name: str, default: object = None) -> object:
    value = file.metadata.get(f"{file.metadata['general.architecture']}.{name}", default)
    return list(value[: MAX_LAYERS + 1]) if isinstance(value, Sequence) and not isinstance(value, str) else value
