"""Good little draft GGUFs of the published families, made byte by byte: what a file of each has beside the plain one.

Keys, names, types and shapes are those that llama.cpp reads for architecture ``dflash`` (src/models/dflash.cpp) and
that its converter writes (October 2026).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tests.draft_file import (
    ARRAY,
    BOOL,
    F32,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    LAYERS,
    RANK,
    STRING,
    U32,
    VOCAB,
    DraftFile,
)

#: of DFlash2
KERNEL, GROUP, SELECTOR_RANK, TOP_K = 3, 16, 8, 7
#: dimensions that turn, of Gemma4's
ROTATED = 4
WINDOW = 128
#: tokens of a reduced vocabulary, and their ids in the target's
REDUCED = 40
IDS = range(3, 3 + REDUCED)

PROJECTIONS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def put(file: DraftFile, **values: tuple[Any, ...]) -> None:
    """Set keys of mainline's, ``__`` for a dot, to (type, value[, item type])."""
    file.kv |= {f"dflash.{name.replace('__', '.')}": (*value, None)[:3] for name, value in values.items()}


def window(file: DraftFile, *pattern: bool) -> None:
    put(file, attention__sliding_window=(U32, WINDOW), attention__sliding_window_pattern=(ARRAY, [*pattern], BOOL))


def reduce(file: DraftFile) -> None:
    """A head for some tokens of the target only."""
    file.tensors["d2t"] = ("I64", (REDUCED,))
    file.data["d2t"] = struct.pack(f"<{REDUCED}q", *IDS)
    file.tensors["output.weight"] = ("F32", (HIDDEN, REDUCED))
    if "markov_w2.weight" in file.tensors:
        file.tensors["markov_w2.weight"] = ("F32", (RANK, REDUCED))


def dflash() -> DraftFile:
    """DFlash: no heads of its own, drafts from the slot after the anchor."""
    file = DraftFile()
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
        del file.tensors[name]
    file.kv["dflash.sample_from_anchor"] = (BOOL, False, None)
    file.kv["dflash.has_confidence_head"] = (BOOL, False, None)
    file.kv["dspark.markov_rank"] = (U32, 0, None)
    file.kv["dspark.markov_head_type"] = (STRING, "none", None)
    return file


def speculators_dflash() -> DraftFile:
    """RedHat's for Gemma4 31B: windowed layers and a full one, a reduced vocabulary, embeddings and head of its own."""
    file = dflash()
    window(file, True, False)
    reduce(file)
    file.tensors["token_embd.weight"] = ("F32", (HIDDEN, VOCAB))
    file.kv["dspark.causal_pattern"] = (ARRAY, [True, False], BOOL)
    put(file, attention__causal=(BOOL, False))
    return file


def speculators_dspark() -> DraftFile:
    """RedHat's for Gemma4 31B: bonus anchor, causal in a window, a reduced vocabulary."""
    file = DraftFile()
    window(file, True, True)
    reduce(file)
    put(file, attention__causal=(BOOL, True), sample_from_anchor=(BOOL, False))
    return file


def nemotron() -> DraftFile:
    """Nemotron's: NVFP4 projections, sinks, causal in a window, bonus anchor, no confidence head."""
    file = DraftFile()
    window(file, True, True)
    put(file, attention__causal=(BOOL, True), sample_from_anchor=(BOOL, False), has_confidence_head=(BOOL, False))
    for name in ("conf_proj.weight", "conf_proj.bias"):
        del file.tensors[name]
    for layer in range(LAYERS):
        file.tensors[f"blk.{layer}.attn_sinks.weight"] = ("F32", (HEADS,))
        for name in PROJECTIONS:
            shape = file.tensors[f"blk.{layer}.{name}.weight"][1]
            if shape[0] % 64 == 0:
                file.tensors[f"blk.{layer}.{name}.weight"] = ("NVFP4", shape)
                file.tensors[f"blk.{layer}.{name}.scale"] = ("F32", (1,))
                file.data[f"blk.{layer}.{name}.scale"] = struct.pack("<f", 0.003)
    return file


def mimo() -> DraftFile:
    """MiMo's: sinks, a window, half of the rotation, values scaled, the target's tables with a mask row of its own."""
    file = dflash()
    window(file, True, True)
    put(file, rope__dimension_count=(U32, HEAD_DIM // 2), attention__value_scale=(F32, 0.612))
    for layer in range(LAYERS):
        file.tensors[f"blk.{layer}.attn_sinks.weight"] = ("F32", (HEADS,))
    file.tensors["token_embd.weight"] = ("F32", (HIDDEN, VOCAB))
    file.tensors["output.weight"] = ("F32", (HIDDEN, VOCAB))
    file.kv["dspark.mask_row"] = (BOOL, True, None)
    return file


def kimi() -> DraftFile:
    """SpecForge's for Kimi K3: YaRN, 16 times, with another factor of attention than the usual 1.277."""
    file = DraftFile()
    put(
        file,
        rope__scaling__type=(STRING, "yarn"),
        rope__scaling__factor=(F32, 16.0),
        rope__scaling__original_context_length=(U32, 256),
        rope__scaling__attn_factor=(F32, 1.5 / 1.2772588722239782),
        rope__scaling__yarn_attn_factor=(F32, 1.5),
    )
    return file


def dflash2() -> DraftFile:
    """Muse's: convolutions, selector, a window, scales of the target."""
    file = dflash()
    window(file, True, True)
    put(
        file,
        conv_kernel_size=(U32, KERNEL),
        conv_group_size=(U32, GROUP),
        selector_rank=(U32, SELECTOR_RANK),
        selector_top_k=(U32, TOP_K),
        embedding_scale=(F32, 2.0),
        logit_scale=(F32, 0.25),
        final_logit_softcapping=(F32, 20.0),
    )
    file.tensors["selector_predecessor.weight"] = ("F32", (SELECTOR_RANK, VOCAB))
    file.tensors["selector_successor.weight"] = ("F32", (SELECTOR_RANK, VOCAB))
    file.tensors["selector_hidden.weight"] = ("F32", (HIDDEN, SELECTOR_RANK))
    for layer in range(LAYERS):
        for half in ("attn", "ffn"):
            file.tensors[f"blk.{layer}.{half}_conv_base"] = ("F32", (HIDDEN, KERNEL, 2))
            file.tensors[f"blk.{layer}.{half}_conv_proj.weight"] = ("F32", (HIDDEN, 2 * KERNEL * HIDDEN // GROUP))
    return file


def gemma4() -> DraftFile:
    """DeepSpec's for Gemma4 12B: keys as values, norms behind both halves, a scale a layer, proportional RoPE."""
    file = DraftFile()
    file.kv["dspark.backbone"] = (STRING, "gemma4", None)
    file.kv["dspark.rope_rotated"] = (U32, ROTATED, None)
    put(
        file,
        attention__scale=(F32, 1.0),
        embedding_scale=(F32, 8.0),
        hidden_activation=(STRING, "gelu_pytorch_tanh"),
    )
    for layer in range(LAYERS):
        del file.tensors[f"blk.{layer}.attn_v.weight"]
        for name in ("post_attention_norm", "post_ffw_norm"):
            file.tensors[f"blk.{layer}.{name}.weight"] = ("F32", (HIDDEN,))
        file.tensors[f"blk.{layer}.layer_output_scale.weight"] = ("F32", (1,))
    file.tensors["rope_freqs.weight"] = ("F32", (HEAD_DIM // 2,))
    still = HEAD_DIM // 2 - ROTATED // 2
    file.data["rope_freqs.weight"] = struct.pack(f"<{HEAD_DIM // 2}f", *[1.0] * (ROTATED // 2), *[1e30] * still)
    return file


FAMILIES: dict[str, Callable[[], DraftFile]] = {
    "dspark": DraftFile,
    "dflash": dflash,
    "speculators-dflash": speculators_dflash,
    "speculators-dspark": speculators_dspark,
    "nemotron": nemotron,
    "mimo": mimo,
    "kimi": kimi,
    "dflash2": dflash2,
    "gemma4": gemma4,
}
