"""One little DeepSeek-V4 draft in every layout that has such drafts; see layout_files for the sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.draft_file import BOOL, F32, U32, DraftFile
from tests.gguf_bytes import ARRAY, STRING
from tests.stage_file import BLOCK_SIZE, SMALL, Sizes, StageFile

KV = dict[str, tuple[int, Any, int | None]]


def scalars(entries: Mapping[str, tuple[int, Any]]) -> KV:
    return {key: (kind, value, None) for key, (kind, value) in entries.items()}


def renamed(file: DraftFile, names: Mapping[str, str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors in the same order, some under other names."""
    return {names.get(name, name): tensor for name, tensor in file.tensors.items()}


def plain_stages(n: Sizes = SMALL) -> StageFile:
    """The DeepSeek-V4 draft in mainline's layout, without our own keys."""
    file = StageFile(n)
    for key in ("dspark.backbone", "dspark.rope_style", "dspark.markov_rank"):
        del file.kv[key]
    return file


STAGE_SUFFIXES = (
    "ffn_gate_exps.weight ffn_down_exps.weight ffn_up_exps.weight attn_sinks.weight attn_kv_a_norm.weight "
    "attn_q_a_norm.weight attn_kv.weight attn_output_a.weight attn_output_b.weight attn_q_a.weight attn_q_b.weight "
    "attn_norm.weight exp_probs_b.bias ffn_gate_inp.weight ffn_gate_shexp.weight ffn_down_shexp.weight "
    "ffn_up_shexp.weight ffn_norm.weight hc_attn_base.weight hc_attn_fn.weight hc_attn_scale.weight "
    "hc_ffn_base.weight hc_ffn_fn.weight hc_ffn_scale.weight"
).split()

DS4_NAMES = {f"blk.{stage}.{suffix}": f"mtp.{stage}.{suffix}" for stage in range(3) for suffix in STAGE_SUFFIXES} | {
    "fc.weight": "mtp.0.main_proj.weight",
    "enc.output_norm.weight": "mtp.0.main_norm.weight",
    "output_norm.weight": "mtp.2.norm.weight",
    "output_hc_base.weight": "mtp.2.hc_head_base.weight",
    "output_hc_fn.weight": "mtp.2.hc_head_fn.weight",
    "output_hc_scale.weight": "mtp.2.hc_head_scale.weight",
    "markov_w1.weight": "mtp.2.markov_head.markov_w1.weight",
    "markov_w2.weight": "mtp.2.markov_head.markov_w2.weight",
    "conf_proj.weight": "mtp.2.confidence_head.proj.weight",
}


def ds4(n: Sizes = SMALL) -> DraftFile:
    file = plain_stages(n)
    file.tensors = renamed(file, DS4_NAMES)
    file.kv = scalars(
        {
            "general.architecture": (STRING, "deepseek4-dspark"),
            "general.name": (STRING, "DeepSeek V4 Flash DSpark support"),
            "dspark.block_size": (U32, BLOCK_SIZE),
            "dspark.markov_rank": (U32, n.rank),
            "dspark.noise_token_id": (U32, n.mask),
            "dspark.stage_count": (U32, 3),
            "dspark.n_layers": (U32, 3),
        }
    )
    file.kv["dspark.target_layer_ids"] = (ARRAY, [tap - 1 for tap in n.taps], U32)
    return file


def ds4_target(path: Path, n: Sizes = SMALL) -> Path:
    """The header of a DeepSeek-V4 target of ``n``, as llama.cpp's converter writes it, as far as ds4 looks."""
    file = StageFile(n)
    keep = (
        "context_length embedding_length rope.freq_base rope.dimension_count attention.layer_norm_rms_epsilon "
        "attention.sliding_window expert_used_count expert_weights_scale expert_weights_norm "
        "hyper_connection.sinkhorn_iterations hyper_connection.epsilon"
    ).split()
    stated = {f"deepseek4.{key}": file.kv[f"dflash.{key}"] for key in keep}
    file.kv = scalars({"general.architecture": (STRING, "deepseek4"), "deepseek4.block_count": (U32, 5)}) | stated
    file.kv["deepseek4.swiglu_clamp_exp"] = (ARRAY, [10.0] * 5, F32)
    file.tensors = {"output_norm.weight": ("F32", (n.hidden,))}
    return file.write(path)


def ds41() -> DraftFile:
    """78 tensors: none at the end of the residual streams; the layers are named by their inputs."""
    file = ds4()
    for name in ("mtp.2.hc_head_base.weight", "mtp.2.hc_head_fn.weight", "mtp.2.hc_head_scale.weight"):
        del file.tensors[name]
    file.kv |= scalars(
        {
            "general.architecture": (STRING, "deepseek41-dspark"),
            "dspark.target_architecture": (STRING, "deepseek41"),
            "dspark.expert_count": (U32, SMALL.experts),
            "dspark.expert_used_count": (U32, SMALL.used),
        }
    )
    file.kv["dspark.target_layer_ids"] = (ARRAY, list(SMALL.taps), U32)
    return file


def v41() -> DraftFile:
    file = plain_stages()
    for name in ("output_hc_base.weight", "output_hc_fn.weight", "output_hc_scale.weight"):
        del file.tensors[name]
    file.kv["dflash.dsv41_semantics"] = (BOOL, True, None)
    return file


def no_vocab() -> DraftFile:
    file = plain_stages()
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.pre"):
        del file.kv[key]
    file.kv["tokenizer.ggml.model"] = (STRING, "no_vocab", None)
    file.kv["dflash.vocab_size"] = (U32, SMALL.vocab, None)
    return file
