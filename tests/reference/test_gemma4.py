"""Gemma4's block against loops over plain floats, what its parts do, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from dspark_convert.reference.config import Config
from dspark_convert.reference.draft import Block, Reference
from dspark_convert.reference.facts import read_facts
from dspark_convert.reference.gemma4 import gelu
from dspark_convert.reference.gemma4_facts import rotation
from fixtures.gemma4 import GEMMA4_CONFIG, make_gemma4_pair
from tests.reference import gemma4_loops as loops

pytestmark = pytest.mark.usefixtures("one_thread")

#: so small that loops are quick; the table, and with it the vocabulary, is the tiny target's
SMALL: dict[str, Any] = {
    "num_hidden_layers": 2,
    "layer_types": ["full_attention"] * 2,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "global_head_dim": 16,
    "markov_rank": 4,
    "block_size": 2,
    "target_layer_ids": [0, 2],
}
CHOSEN = [7, 30]


def draft(root: Path, **changes: Any) -> Path:
    return make_gemma4_pair(root, dtype="F32", **{**SMALL, **changes}).draft_dir


def features(n_past: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).normal(size=(n_past, 2 * 128))


def block(directory: Path, **options: Any) -> Block:
    return Reference.load(directory, **options).block(features(), 11, CHOSEN)


ROPE = {"rope_type": "proportional", "rope_theta": 1000.0}


@pytest.mark.parametrize(
    ("changes", "turning", "theta"),
    [
        ({}, 2, 1e6),
        ({"rope_parameters": None}, 2, 1e6),
        ({"rope_parameters": {"full_attention": {**ROPE, "partial_rotary_factor": 0.5}}}, 4, 1000.0),
        ({"rope_parameters": ROPE}, 8, 1000.0),
        ({"final_logit_softcapping": None}, 2, 1e6),
        ({"attention_k_eq_v": False, "num_key_value_heads": 2}, 2, 1e6),
        ({"confidence_name": "confidence_proj"}, 2, 1e6),
    ],
    ids=["published", "no-rope", "half", "flat-full", "no-cap", "own-values", "spelling"],
)
def test_agrees_with_loops(tmp_path: Path, changes: dict[str, Any], turning: int, theta: float) -> None:
    directory = draft(tmp_path, **changes)
    tensors = load_file(directory / "model.safetensors")
    renamed = {name.replace("confidence_proj.", "confidence_head.proj."): x for name, x in tensors.items()}
    config = Config(directory).values
    logits, confidences = loops.block_logits(renamed, config, features().tolist(), 11, CHOSEN, turning, theta)
    found = block(directory)
    assert np.abs(found.logits - logits).max() < 1e-9
    assert found.confidence is not None
    assert np.abs(found.confidence - confidences).max() < 1e-12


def test_facts_are_those_of_the_global_layers(tmp_path: Path) -> None:
    facts = read_facts(make_gemma4_pair(tmp_path).draft_dir)
    assert (facts.head_dim, facts.n_head, facts.n_head_kv, facts.sample_from_anchor) == (64, 4, 1, True)
    assert (facts.embedding_scale, facts.logit_cap, facts.logit_scale) == (128**0.5, 30.0, 1.0)
    assert facts.gemma4 is not None
    assert (facts.gemma4.key_is_value, facts.gemma4.turning_pairs) == (True, 8)


def test_turning_all_pairs_proportionally_is_rope_as_usual(tmp_path: Path) -> None:
    whole = {**ROPE, "partial_rotary_factor": 1.0}
    proportional = block(draft(tmp_path / "a", rope_parameters={"full_attention": whole}))
    usual = block(draft(tmp_path / "b", rope_parameters={"full_attention": {**whole, "rope_type": "default"}}))
    assert np.array_equal(proportional.logits, usual.logits)


def test_the_layer_scale_multiplies_the_whole_stream(tmp_path: Path) -> None:
    """Scaled at its end, one layer's stream leaves the same behind the final norm (but for its epsilon)."""
    directory = draft(tmp_path, num_hidden_layers=1, layer_types=["full_attention"], rms_norm_eps=1e-30)
    scaled = {"layers.0.layer_scalar": np.array([7.0], np.float32)}
    assert np.abs(block(directory).logits - block(directory, weights=scaled).logits).max() < 1e-9
    flipped = {"layers.0.layer_scalar": np.array([-1.0], np.float32)}
    assert np.abs(block(directory).logits - block(directory, weights=flipped).logits).max() > 1


def test_the_cap_comes_before_the_markov_bias(tmp_path: Path) -> None:
    directory = draft(tmp_path, final_logit_softcapping=2.0)
    no_bias = {"markov_head.markov_w2.weight": np.zeros((512, 4), np.float32)}
    plain = block(directory, weights=no_bias, plain_logits=True).logits
    assert np.allclose(block(directory, weights=no_bias).logits, 2 * np.tanh(plain / 2))
    bias = block(directory, plain_logits=True).logits - plain
    assert np.allclose(block(directory).logits, 2 * np.tanh(plain / 2) + bias)


def test_gelu_of_the_table_is_rounded_to_float16_on_both_sides() -> None:
    inputs = [-11.0, -10.0, -0.1, 0.0, 1 + 2**-12, 3.0, 10.0, 11.0]
    half = [float(np.float16(loops.gelu(float(np.float16(x))))) for x in inputs]
    found = gelu(torch.tensor(inputs, dtype=torch.float64), table=True)
    assert found.tolist() == [0, 0, *half[2:-2], 10, 11]
    exact = gelu(torch.tensor(inputs, dtype=torch.float64), table=False)
    assert exact.tolist() == pytest.approx([loops.gelu(x) for x in inputs], abs=1e-14)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_activation": "silu"}, "hidden_activation has to be gelu_pytorch_tanh"),
        ({"enable_moe_block": True}, "enable_moe_block"),
        ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input"),
        ({"use_double_wide_mlp": True, "num_kv_shared_layers": 1}, "use_double_wide_mlp"),
        ({"attention_bias": True}, "attention_bias"),
        ({"is_causal": True}, "is_causal"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has to be full_attention everywhere"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_parameters.rope_type"),
        ({"rope_parameters": {**ROPE, "partial_rotary_factor": 1.5}}, "partial_rotary_factor has to be at most 1"),
        ({"rope_parameters": {**ROPE, "factor": 8.0}}, "rope_parameters.factor"),
        ({"markov_head_type": "gated"}, "vanilla Markov head"),
        ({"final_logit_softcapping": 0}, "final_logit_softcapping has to be a positive number"),
    ],
)
def test_refuses_what_it_cannot_compute(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Reference.load(draft(tmp_path, **changes))


def test_refuses_a_missing_and_an_unknown_tensor(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    directory = draft(tmp_path)
    path = directory / "model.safetensors"
    tensors = load_file(path)
    scale = tensors.pop("layers.1.layer_scalar")
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"lacks tensor layers\.1\.layer_scalar of shape \[1\]"):
        Reference.load(directory)
    save_file(tensors | {"layers.1.layer_scalar": scale, "layers.0.self_attn.v_proj.weight": scale}, path)
    with pytest.raises(ValueError, match=r"does not know what tensor layers\.0\.self_attn\.v_proj\.weight does"):
        Reference.load(directory)


def test_the_quarter_without_rope_parameters_is_the_published_one(tmp_path: Path) -> None:
    for name, rope in (("a", GEMMA4_CONFIG["rope_parameters"]), ("b", None)):
        assert rotation(Config(draft(tmp_path / name, rope_parameters=rope))) == (2, 1e6)
