"""The target's layer inputs and logits, against loops over Python's floats and the trainer's own model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dspark_convert.reference.target import TargetReference
from fixtures.qwen3_torch import Qwen3
from fixtures.tiny import make_tiny_pair
from tests.reference import miniature as mini

TOKENS = [3, 1, 4, 1, 5]


def test_target_worked_out_in_loops(tmp_path: Path) -> None:
    config, w = mini.target()
    inputs, logits = TargetReference.load(mini.write(tmp_path / "target", config, w)).run(TOKENS)
    before, behind = mini.target_streams(w, TOKENS)
    np.testing.assert_allclose(inputs, [before, behind], atol=1e-12)
    expected = [mini.times(w["lm_head.weight"], mini.norm(x, w["model.norm.weight"])) for x in behind]
    np.testing.assert_allclose(logits, expected, atol=1e-12)


@pytest.mark.parametrize("shape", [{}, {"heads": 6, "kv_heads": 2, "head_dim": 16, "tie": True, "rope_theta": 5e5}])
def test_target_is_the_trainer_s(tmp_path: Path, shape: dict[str, Any]) -> None:
    directory = make_tiny_pair(tmp_path, **shape).target_dir
    tokens = [7, 300, 12, 99, 5, 431]
    inputs, logits = TargetReference.load(directory).run(tokens)
    target = Qwen3(json.loads((directory / "config.json").read_text(encoding="utf-8")))
    target.load_checkpoint(load_file(directory / "model.safetensors"))
    with torch.no_grad():
        expected, streams = target.double()(torch.tensor([tokens]))
    np.testing.assert_allclose(inputs, torch.cat(streams).numpy(), atol=5e-6)
    np.testing.assert_allclose(logits, expected[0].numpy(), atol=5e-6)


@pytest.mark.parametrize("tokens", [[], [6], [-1]])
def test_tokens_outside_the_vocabulary(tmp_path: Path, tokens: list[int]) -> None:
    target = TargetReference.load(mini.write(tmp_path / "target", *mini.target()))
    with pytest.raises(ValueError, match="one token or more, each below 6"):
        target.run(tokens)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM"),
        ({"use_sliding_window": True}, "cannot compute sliding windows"),
        ({"rope_scaling": {"type": "longrope", "factor": 4.0}}, "cannot compute RoPE scaling"),
        ({"num_hidden_layers": 10**12}, "lacks tensor layers.1.input_layernorm.weight"),
        ({"vocab_size": 7}, r"embed_tokens.weight has to be \[7, 4\], found \[6, 4\]"),
        ({"attention_bias": True}, "lacks tensor layers.0.self_attn.q_proj.bias"),
    ],
)
def test_other_targets_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    config, w = mini.target()
    with pytest.raises(ValueError, match=words):
        TargetReference.load(mini.write(tmp_path / "target", {**config, **changes}, w))
