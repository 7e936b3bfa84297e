"""The families' reference computes what llama.cpp computes of the same numbers, in files not of the converter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dspark_convert.reference.draft import Reference
from fixtures.families import make_pair
from fixtures.hf_pair import TinyPair
from fixtures.target_gguf import write_target_gguf
from tests import oracle
from tests.family_oracle import (
    ANCHOR,
    BLOCK,
    BONUS,
    CAUSAL,
    CONFIDENCE,
    NO_CONFIDENCE,
    TAPS,
    common_kv,
    unpacked,
    window,
)

#: the longest reaches beyond the windows of 12
LENGTHS = (1, 5, 40)

KeyValues = dict[str, tuple[str, Any]]

MIXED = window(12, (True, False, True))
EPS = {"dflash.attention.layer_norm_rms_epsilon": ("FLOAT32", float(np.float32(1e-5)))}
YARN: KeyValues = {
    "dflash.rope.scaling.type": ("STRING", "yarn"),
    "dflash.rope.scaling.factor": ("FLOAT32", 16.0),
    "dflash.rope.scaling.original_context_length": ("UINT32", 64),
}
MIMO: KeyValues = {
    "dflash.rope.dimension_count": ("UINT32", 16),
    "dflash.attention.value_scale": ("FLOAT32", float(np.float32(0.612))),
}

#: the file's keys beyond those of all, and what the child is told
KEYS: dict[str, tuple[KeyValues, tuple[str, ...]]] = {
    "specforge_yarn": (ANCHOR | CONFIDENCE | TAPS | YARN | EPS | {"dflash.block_size": ("UINT32", 7)}, ()),
    "lfm2": (ANCHOR | CONFIDENCE | TAPS | EPS | {"dflash.block_size": ("UINT32", 9)}, ()),
    "mimo": (BONUS | NO_CONFIDENCE | TAPS | BLOCK | window(12) | MIMO | EPS, ("bonus", "unsure", "dflash")),
    "muse": (BONUS | NO_CONFIDENCE | TAPS | BLOCK | window(12) | EPS, ("bonus", "unsure", "dflash")),
    "nemotron_inner": (
        BONUS | NO_CONFIDENCE | TAPS | BLOCK | window(12) | CAUSAL,
        ("bonus", "unsure", "causal"),
    ),
    "speculators_dspark_bonus": (BONUS | CONFIDENCE | TAPS | BLOCK | window(12) | CAUSAL, ("bonus", "causal")),
    "speculators_dflash": (
        BONUS | NO_CONFIDENCE | TAPS | BLOCK | MIXED | CAUSAL,
        ("bonus", "unsure", "dflash", "causal"),
    ),
    "zlab_dflash_windows": (
        BONUS | NO_CONFIDENCE | TAPS | BLOCK | window(12, (True, True, False)),
        ("bonus", "unsure", "dflash"),
    ),
}

#: llama.cpp's one flag, where layers differ
FLAGS = {"speculators_dflash": True, "zlab_dflash_windows": False}


def tensors_of(pair: TinyPair) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """All of the draft's in F32, heads in NeoX order and ids absolute, and MiMo's own tables."""
    (file,) = pair.draft_dir.glob("*.safetensors")
    sources = load_file(file)
    if file.name == "model.safetensors":
        sources |= unpacked(pair.draft_dir)
    target, mask = load_file(pair.target_dir / "model.safetensors"), pair.draft_dir / "mask_embedding.pt"
    if mask.is_file():
        sources["embed_tokens.weight"] = target["model.embed_tokens.weight"].clone()
        sources["embed_tokens.weight"][507] = torch.load(mask)["embedding"]
        sources["lm_head.weight"] = target["lm_head.weight"]
    found = {}
    for name, tensor in sources.items():
        if name.endswith(("_scale", "_scale_2")) or name == "t2d":
            continue
        plain = name.replace("encoder.fc", "fc").replace("encoder.output_norm_enc", "hidden_norm")
        if name == "d2t":
            found["d2t"] = ("I64", tuple(tensor.shape), (tensor + torch.arange(len(tensor))).numpy().tobytes())
        elif name.endswith("attention_sink_bias"):
            found[f"blk.{name.split('.')[1]}.attn_sinks.weight"] = oracle.encode(tensor, "f32")
        else:
            found[oracle.gguf_name(plain)] = oracle.encode(tensor, "f32")
    return found


def put_even_before_odd(tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    for name, (kind, shape, data) in tensors.items():
        if name.endswith(("attn_q.weight", "attn_k.weight", "attn_q_norm.weight", "attn_k_norm.weight")):
            heads = np.frombuffer(data, np.float32).reshape(-1, 16, 2, shape[0] if len(shape) == 2 else 1)
            tensors[name] = (kind, shape, heads.swapaxes(1, 2).tobytes())


@pytest.mark.parametrize("name", KEYS)
def test_agrees_at_every_position(tmp_path: Path, name: str) -> None:
    pair = make_pair(name, tmp_path)
    files = [tmp_path / file for file in ("target.gguf", "draft.gguf", "blocks.npz")]
    write_target_gguf(pair.target_dir, files[0])
    tensors, (keys, words) = tensors_of(pair), KEYS[name]
    if name == "lfm2":
        put_even_before_odd(tensors)
    kv = {"general.architecture": ("STRING", "dflash"), **common_kv(pair.draft_dir), **keys}
    kv |= {"tokenizer.ggml.mask_token_id": ("UINT32", 507)}
    oracle.write(oracle.Expected(kv, tensors), files[1], files[0])
    target = load_file(pair.target_dir / "model.safetensors")
    tables = {"embed": target["model.embed_tokens.weight"]}
    if "speculators" not in name:
        tables["head"] = target["lm_head.weight"]
    reference = Reference.load(
        pair.draft_dir, float32_angles=True, window_by_distance=True, causal=FLAGS.get(name), **tables
    )
    first, slots = reference.facts.first_slot, reference.facts.slots
    command = [sys.executable, "-m", "tests.reference.llama_blocks", *map(str, [*files, slots, 507, *LENGTHS]), *words]
    root = Path(__file__).parents[2]
    child = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    found = np.load(files[2])
    for n in LENGTHS:
        # a bonus anchor's slot takes none
        drafts = [0] * first + found[f"drafts{n}"].tolist()
        own = reference.block(found[f"features{n}"], int(found[f"anchor{n}"]), drafts)
        known = np.isfinite(own.logits[0])
        given, wanted = found[f"logits{n}"][first - slots :], own.logits[first:]
        np.testing.assert_array_equal(np.isfinite(given), np.isfinite(wanted))
        far = np.abs(given[:, known] - wanted[:, known]).max(1) / wanted[:, known].std(1)
        assert far.max() < 1e-5, (n, far)
        if own.confidence is not None:
            assert np.abs(found[f"confidences{n}"][first - slots :] - own.confidence[first:]).max() < 1e-5
