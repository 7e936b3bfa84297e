"""One little draft in every layout, each file written from that layout's documentation alone.

Sources: llama.cpp's pull request 25173 at 47f3442 (dspark); the converter's tests of a Gemma4 fork (dspark-fork);
``conversion/dspark.py`` and ``tests/gen-tiny-dspark.py`` of PrismML's llama.cpp (dspark-prism) and its
``gguf_dspark_to_dflash.py`` (dflash-log-snr); ``DSparkModel`` and ``DFlashDraftModel`` in the converter of
ik_llama.cpp (dflash-draft); the support file of ds4 (ds4, ds41); the V4.1 export of a llama.cpp fork
(dflash-v4.1); the dumps of TensorSharp's (dflash-bare) and SlimServe's (dflash-no-vocab) files.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.draft_file import BOOL, F32, HIDDEN, I32, LAYERS, U32, VOCAB, DraftFile
from tests.gguf_bytes import ARRAY, STRING
from tests.ggufio.stage_layout_files import KV, ds4, ds41, no_vocab, plain_stages, renamed, scalars, v41
from tests.ggufio.stage_layout_files import ds4_target as ds4_target


def plain(*, tables: bool = False, sinks: bool = False) -> DraftFile:
    """The draft in mainline's layout, without our own keys; ``tables``: with embeddings and head of its own."""
    file = DraftFile()
    for key in [key for key in file.kv if key.startswith("dspark.")]:
        del file.kv[key]
    if tables:
        file.tensors["token_embd.weight"] = ("F16", (HIDDEN, VOCAB))
        file.tensors["output.weight"] = ("F16", (HIDDEN, VOCAB))
    if sinks:
        for layer in range(LAYERS):
            file.tensors[f"blk.{layer}.attn_sinks.weight"] = ("F32", (4,))
    return file


def plain_dflash() -> DraftFile:
    """A DFlash draft without Markov head, with window, causal attention of none, and embeddings of the target."""
    file = plain()
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
        del file.tensors[name]
    del file.kv["dflash.sample_from_anchor"], file.kv["dflash.has_confidence_head"]
    file.kv["dflash.attention.sliding_window"] = (U32, 128, None)
    file.kv["dflash.attention.sliding_window_pattern"] = (ARRAY, [True, False], BOOL)
    file.kv["dflash.rope.dimension_count"] = (U32, 8, None)
    return file


def network(prefix: str) -> KV:
    """What llama.cpp's ``TextModel`` writes of any model like Qwen3."""
    return scalars(
        {
            f"{prefix}.block_count": (U32, 2),
            f"{prefix}.context_length": (U32, 4096),
            f"{prefix}.embedding_length": (U32, 64),
            f"{prefix}.feed_forward_length": (U32, 96),
            f"{prefix}.attention.head_count": (U32, 4),
            f"{prefix}.attention.head_count_kv": (U32, 2),
            f"{prefix}.rope.freq_base": (F32, 1e6),
            f"{prefix}.attention.layer_norm_rms_epsilon": (F32, 1e-6),
            f"{prefix}.attention.key_length": (U32, 16),
            f"{prefix}.attention.value_length": (U32, 16),
        }
    )


def vocabulary() -> KV:
    return {key: entry for key, entry in DraftFile().kv.items() if key.startswith("tokenizer.")}


def early() -> DraftFile:
    file = plain()
    file.kv = scalars({"general.architecture": (STRING, "dspark"), "general.name": (STRING, "Tiny draft")})
    file.kv |= network("dspark")
    file.kv |= scalars({"dspark.block_size": (U32, 7), "dspark.markov_rank": (U32, 32)})
    file.kv["dspark.target_layers"] = (ARRAY, [1, 3, 5], I32)
    file.kv |= vocabulary()
    return file


def fork() -> DraftFile:
    file = plain(tables=True)
    file.tensors = renamed(
        file,
        {
            "markov_w1.weight": "markov.w1.weight",
            "markov_w2.weight": "markov.w2.weight",
            "conf_proj.weight": "confidence.proj.weight",
            "conf_proj.bias": "confidence.proj.bias",
        },
    )
    file.kv = scalars({"general.architecture": (STRING, "dspark")}) | network("dspark")
    file.kv |= scalars(
        {
            "dspark.block_size": (U32, 7),
            "dspark.attention.causal": (BOOL, False),
            "dspark.markov_rank": (U32, 32),
            "dspark.markov_head_type": (STRING, "vanilla"),
            "dspark.enable_confidence_head": (BOOL, True),
            "dspark.confidence_head_with_markov": (BOOL, True),
        }
    )
    file.kv["dspark.target_layers"] = (ARRAY, [1, 3, 5], I32)
    file.kv |= vocabulary()
    return file


def prism() -> DraftFile:
    file = plain(tables=True)
    file.tensors = renamed(
        file,
        {
            "fc.weight": "dspark.fc.weight",
            "enc.output_norm.weight": "dspark.hidden_norm.weight",
            "markov_w1.weight": "dspark.markov_head_a.weight",
            "markov_w2.weight": "dspark.markov_head_b.weight",
            "conf_proj.weight": "dspark.confidence_head.weight",
            "conf_proj.bias": "dspark.confidence_head.bias",
        },
    )
    file.kv = scalars({"general.architecture": (STRING, "dspark")}) | network("dspark")
    file.kv |= scalars(
        {
            "dspark.vocab_size": (U32, VOCAB),
            "dspark.dspark.block_size": (U32, 7),
            "dspark.dspark.mask_token_id": (U32, 77),
            "dspark.dspark.markov_rank": (U32, 32),
            "dspark.dspark.confidence_head": (BOOL, True),
            "dspark.dspark.confidence_head_with_markov": (BOOL, True),
            "dspark.dspark.log_snr_conditioning": (BOOL, False),
            "tokenizer.ggml.model": (STRING, "none"),
        }
    )
    file.kv["dspark.dspark.target_layers"] = (ARRAY, [0, 2, 4], U32)
    return file


def prism_conditioned() -> DraftFile:
    """As PrismML published it for Bonsai."""
    file = prism()
    file.kv |= scalars(
        {
            "dspark.dspark.log_snr_conditioning": (BOOL, True),
            "dspark.dspark.min_log_snr": (F32, -9.0),
            "dspark.dspark.max_log_snr": (F32, 9.0),
        }
    )
    file.tensors |= {
        "dspark.log_snr_fc1.weight": ("BF16", (128, HIDDEN)),
        "dspark.log_snr_fc1.bias": ("F32", (HIDDEN,)),
        "dspark.log_snr_fc2.weight": ("BF16", (HIDDEN, HIDDEN)),
        "dspark.log_snr_fc2.bias": ("F32", (HIDDEN,)),
    }
    return file


def log_snr() -> DraftFile:
    file = plain(tables=True)
    del file.kv["dflash.has_confidence_head"], file.kv["dflash.sample_from_anchor"]
    file.kv |= scalars(
        {
            "dflash.confidence_head": (BOOL, True),
            "dflash.confidence_head_with_markov": (BOOL, True),
            "dflash.markov_rank": (U32, 32),
            "dflash.log_snr_conditioning": (BOOL, True),
            "dflash.min_log_snr": (F32, -9.0),
            "dflash.max_log_snr": (F32, 9.0),
        }
    )
    for number in (1, 2):
        file.tensors[f"log_snr_fc{number}.weight"] = ("BF16", (128 if number == 1 else HIDDEN, HIDDEN))
        file.tensors[f"log_snr_fc{number}.bias"] = ("F32", (HIDDEN,))
    return file


IK_NAMES = {"fc.weight": "dflash_fc.weight", "enc.output_norm.weight": "dflash_hidden_norm.weight"} | {
    f"blk.{layer}.ffn_norm.weight": f"blk.{layer}.post_attention_norm.weight" for layer in range(LAYERS)
}


def ik() -> DraftFile:
    file = plain(sinks=True)
    file.tensors = renamed(file, IK_NAMES)
    file.kv = ik_kv()
    return file


def ik_kv() -> KV:
    kv = scalars({"general.architecture": (STRING, "dflash-draft")}) | network("dflash-draft") | vocabulary()
    del kv["tokenizer.ggml.mask_token_id"]
    kv |= scalars(
        {
            "dflash-draft.attention.causal": (BOOL, False),
            "dflash-draft.rope.dimension_count": (U32, 16),
            "dflash-draft.dflash.block_size": (U32, 7),
            "dflash-draft.dflash.mask_token_id": (U32, 77),
            "dflash-draft.dflash.n_target_features": (U32, 192),
        }
    )
    kv["dflash-draft.dflash.target_layer_ids"] = (ARRAY, [0, 2, 4], I32)
    return kv


def ik_dflash() -> DraftFile:
    """A DFlash draft whose window leaves a layer out, and whose heads rotate by half."""
    file = plain_dflash()
    file.tensors = renamed(file, IK_NAMES)
    file.kv = ik_kv()
    file.kv["dflash-draft.rope.dimension_count"] = (U32, 8, None)
    file.kv["dflash-draft.attention.sliding_window"] = (U32, 128, None)
    file.kv["dflash-draft.attention.sliding_window_pattern"] = (ARRAY, [True, False], BOOL)
    return file


def bare() -> DraftFile:
    """Sinks without their suffix, norms in BF16, no flags and no list of tokens."""
    file = plain(sinks=True)
    file.tensors = renamed(file, {f"blk.{layer}.attn_sinks.weight": f"blk.{layer}.attn_sinks" for layer in range(2)})
    for name, (_, shape) in list(file.tensors.items()):
        if name.endswith("norm.weight"):
            file.tensors[name] = ("BF16", shape)
    del file.kv["tokenizer.ggml.tokens"], file.kv["tokenizer.ggml.token_type"]
    file.kv["tokenizer.ggml.pre"] = (STRING, "nvidia", None)
    return file


#: case -> dialect, the file, and the same draft in mainline's layout
FILES: dict[str, tuple[str, Callable[[], DraftFile], Callable[[], DraftFile]]] = {
    "mainline": ("dflash", plain, plain),
    "early": ("dspark", early, plain),
    "fork": ("dspark-fork", fork, lambda: plain(tables=True)),
    "prism": ("dspark-prism", prism, lambda: plain(tables=True)),
    "prism-conditioned": ("dspark-prism", prism_conditioned, lambda: plain(tables=True)),
    "log-snr": ("dflash-log-snr", log_snr, lambda: plain(tables=True)),
    "ik": ("dflash-draft", ik, lambda: plain(sinks=True)),
    "ik-dflash": ("dflash-draft", ik_dflash, plain_dflash),
    "bare": ("dflash-bare", bare, lambda: plain(sinks=True)),
    "ds4": ("ds4", ds4, plain_stages),
    "ds41": ("ds41", ds41, plain_stages),
    "v4.1": ("dflash-v4.1", v41, plain_stages),
    "no-vocab": ("dflash-no-vocab", no_vocab, plain_stages),
}
