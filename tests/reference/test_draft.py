"""A draft's blocks, against loops over Python's floats, numbers worked out by hand, and the trainer's own model."""

from __future__ import annotations

import json
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_convert.reference.draft import Reference
from dspark_convert.reference.target import TargetReference
from fixtures.dspark_torch import DSpark
from fixtures.hf_pair import TinyPair
from fixtures.qwen3_torch import Qwen3
from fixtures.tiny import make_tiny_pair
from tests.reference import miniature as mini

#: float64 on both sides
EXACT = 1e-12

#: the trainer's model rotates by angles in float32
TRAINER = 2e-6

FEATURES = np.random.default_rng(3).normal(size=(4, mini.TAPS * mini.HIDDEN))
CHOSEN = [2, 4, 0]
ANCHOR = 3


def block(tmp_path: Path, config: dict[str, Any], tensors: mini.Tensors, features: Any = FEATURES) -> Any:
    return Reference.load(mini.write(tmp_path / "draft", config, tensors)).block(features, ANCHOR, CHOSEN)


def bias(w: mini.Tensors, token: int) -> mini.Vector:
    return mini.times(w["markov_head.markov_w2.weight"], list(w["markov_head.markov_w1.weight"][token]))


def sure(w: mini.Tensors, seen: list[float]) -> float:
    return 1 / (1 + exp(-mini.dot(list(w["confidence_head.proj.weight"][0]), seen) - w["confidence_head.proj.bias"][0]))


@pytest.mark.parametrize("n_past", [0, 1, 4])
def test_block_worked_out_in_loops(tmp_path: Path, n_past: int) -> None:
    config, w = mini.draft()
    found = block(tmp_path, config, w, FEATURES[:n_past])
    states = mini.block_states(w, FEATURES[:n_past].tolist(), ANCHOR)
    previous = [ANCHOR, *CHOSEN[:-1]]
    expected = [
        mini.plus(mini.times(w["lm_head.weight"], x), bias(w, t)) for x, t in zip(states, previous, strict=True)
    ]
    np.testing.assert_allclose(found.logits, expected, atol=EXACT)
    rows = [list(w["markov_head.markov_w1.weight"][token]) for token in previous]
    confidence = [sure(w, x + row) for x, row in zip(states, rows, strict=True)]
    np.testing.assert_allclose(found.confidence, confidence, atol=EXACT)


def test_bonus_anchor_proposes_from_the_first_mask(tmp_path: Path) -> None:
    config, w = mini.draft(sample_from_anchor=False)
    found = block(tmp_path, config, w)
    states = mini.block_states(w, FEATURES.tolist(), ANCHOR)
    plain = [mini.times(w["lm_head.weight"], x) for x in states]
    expected = [plain[0], mini.plus(plain[1], bias(w, ANCHOR)), mini.plus(plain[2], bias(w, CHOSEN[1]))]
    np.testing.assert_allclose(found.logits, expected, atol=EXACT)
    rows = [list(w["markov_head.markov_w1.weight"][token]) for token in (ANCHOR, CHOSEN[1])]
    assert np.isnan(found.confidence[0])
    np.testing.assert_allclose(found.confidence[1:], [sure(w, states[i + 1] + rows[i]) for i in (0, 1)], atol=EXACT)


@pytest.mark.parametrize("rank", [0, mini.RANK])
def test_confidence_of_the_state_alone(tmp_path: Path, rank: int) -> None:
    config, w = mini.draft("hidden_only", rank)
    found = block(tmp_path, config, w)
    states = mini.block_states(w, FEATURES.tolist(), ANCHOR)
    np.testing.assert_allclose(found.confidence, [sure(w, x) for x in states], atol=EXACT)


def test_confidence_without_a_bias(tmp_path: Path) -> None:
    config, w = mini.draft("hidden_only")
    del w["confidence_head.proj.bias"]
    found = block(tmp_path, config, w)
    w["confidence_head.proj.bias"] = np.zeros(1)
    states = mini.block_states(w, FEATURES.tolist(), ANCHOR)
    np.testing.assert_allclose(found.confidence, [sure(w, x) for x in states], atol=EXACT)


def test_draft_without_heads(tmp_path: Path) -> None:
    config, w = mini.draft("none", 0)
    found = block(tmp_path, config, w)
    states = mini.block_states(w, FEATURES.tolist(), ANCHOR)
    np.testing.assert_allclose(found.logits, [mini.times(w["lm_head.weight"], x) for x in states], atol=EXACT)
    assert found.confidence is None


def test_attention_biases_are_added(tmp_path: Path) -> None:
    config, w = mini.draft("none", 0, attention_bias=True)
    sizes = {name.replace("weight", "bias"): t.shape[:1] for name, t in w.items() if "self_attn" in name and t.ndim > 1}
    assert len(sizes) == 4
    w |= mini.draw(sizes, seed=4)
    found = block(tmp_path, config, w)
    states = mini.block_states(w, FEATURES.tolist(), ANCHOR)
    np.testing.assert_allclose(found.logits, [mini.times(w["lm_head.weight"], x) for x in states], atol=EXACT)


def test_numbers_worked_out_by_hand(tmp_path: Path) -> None:
    """No past, a block of one, projections that add nothing but v and o.

    x = (3, 4, 0, 0): mean square 6.25, with eps 0.01 the root is 2.50199920...; a token that sees only itself
    gets its own value, (3, 4) / 2.501999; o doubles it: x = (5.398081, 7.197442, 0, 0), mean square
    20.235676..., root 4.499519...; final state (1.199702, 1.599603, 0, 0); the head reads entries 0 and 1,
    the Markov head of rank 2 adds (10, 20) to logits 0 and 1.
    """
    config, w = mini.draft("with_markov", block_size=1)
    w = {name: np.ones_like(t) if "norm" in name else np.zeros_like(t) for name, t in w.items()}
    w["embed_tokens.weight"][ANCHOR] = [3, 4, 0, 0]
    w["layers.0.self_attn.v_proj.weight"][:] = np.eye(2, 4)
    w["layers.0.self_attn.o_proj.weight"][:] = 2 * np.eye(4, 2)
    w["lm_head.weight"][:2] = np.eye(2, 4)
    w["markov_head.markov_w1.weight"][ANCHOR] = [1, 2]
    w["markov_head.markov_w2.weight"][:2] = 10 * np.eye(2)
    w["confidence_head.proj.weight"][:] = [1, 0, 0, 0, 0, 1]
    w["confidence_head.proj.bias"][:] = -3
    reference = Reference.load(mini.write(tmp_path / "draft", config, w))
    found = reference.block(np.zeros((0, 8)), ANCHOR, [0])
    np.testing.assert_allclose(found.logits, [[11.199702, 21.599603, 0, 0, 0, 0]], atol=1e-6)
    assert found.confidence is not None
    # sigmoid(1.199702 + 2 - 3) = 1 / (1 + exp(-0.199702)) = 1 / 1.818975
    np.testing.assert_allclose(found.confidence, [0.549760], atol=1e-6)


SHAPES = [
    {},
    {"heads": 3, "kv_heads": 1, "head_dim": 16, "hidden_size": 64},
    {"heads": 8, "kv_heads": 1, "block_size": 1, "markov_rank": 256},
    {"heads": 5, "kv_heads": 5, "head_dim": 8, "target_layer_ids": (3, -1, 1, 0), "block_size": 16},
    {"tie": True, "rope_theta": 1e6, "draft_layers": 1, "dtype": "F16"},
]


def features_of(pair: TinyPair, tokens: list[int], taps: tuple[int, ...]) -> np.ndarray[Any, Any]:
    inputs, _ = TargetReference.load(pair.target_dir).run(tokens)
    return np.concatenate([inputs[tap] for tap in taps], 1)


def read_config(directory: Path) -> dict[str, Any]:
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    assert isinstance(config, dict)
    return config


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_are_the_trainer_s(tmp_path: Path, shape: dict[str, Any]) -> None:
    pair = make_tiny_pair(tmp_path, **shape)
    reference = Reference.load(pair.draft_dir)
    tokens = [7, 300, 12, 99, 5, 431, 88, 2, 17, 250]
    n_past = len(tokens) - 1
    chosen = [(11 * i + 5) % 512 for i in range(reference.facts.slots)]
    found = reference.block(features_of(pair, tokens[:n_past], reference.facts.taps), tokens[-1], chosen)

    target = Qwen3(read_config(pair.target_dir))
    target.load_checkpoint(load_file(pair.target_dir / "model.safetensors"))
    draft = DSpark(read_config(pair.draft_dir))
    draft.load_state_dict({name: t.float() for name, t in load_file(pair.draft_dir / "model.safetensors").items()})
    target, draft = target.double(), draft.double()
    with torch.no_grad():
        _, streams = target(torch.tensor([tokens]))
        hidden = draft.hidden(draft.context(streams), torch.tensor([[n_past]]), torch.tensor([tokens[-1:]]))[0, 0]
        previous = torch.tensor([tokens[-1], *chosen[:-1]])
        logits = draft.biased_logits(hidden, previous)
        confidence = draft.confidence(hidden, previous).sigmoid()
    assert found.logits.dtype == np.float64
    np.testing.assert_allclose(found.logits, logits.numpy(), atol=TRAINER)
    np.testing.assert_allclose(found.confidence, confidence.numpy(), atol=TRAINER)


def test_large_models_are_computed_in_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, w = mini.draft()
    exact = block(tmp_path / "small", config, w)
    monkeypatch.setattr("dspark_convert.reference.weights.SMALL", 1)
    rough = block(tmp_path / "large", config, w)
    assert rough.logits.dtype == rough.confidence.dtype == np.float32
    np.testing.assert_allclose(rough.logits, exact.logits, atol=2e-5)
    np.testing.assert_allclose(rough.confidence, exact.confidence, atol=2e-6)


def test_tables_given_stand_in_for_the_checkpoint_s(tmp_path: Path) -> None:
    config, w = mini.draft()
    expected = block(tmp_path / "whole", config, w)
    embed, head = w.pop("embed_tokens.weight"), w.pop("lm_head.weight")
    without = mini.write(tmp_path / "without", config, w)
    with pytest.raises(ValueError, match=r"lacks tensor embed_tokens.weight of shape \[6, 4\]"):
        Reference.load(without)
    found = Reference.load(without, embed=embed, head=torch.tensor(head)).block(FEATURES, ANCHOR, CHOSEN)
    np.testing.assert_array_equal(found.logits, expected.logits)
    other = mini.write(tmp_path / "other", config, {**w, "embed_tokens.weight": embed * 2, "lm_head.weight": head * 2})
    found = Reference.load(other, embed=embed, head=head).block(FEATURES, ANCHOR, CHOSEN)
    np.testing.assert_array_equal(found.logits, expected.logits)


def test_weights_given_replace_the_checkpoint_s(tmp_path: Path) -> None:
    config, w = mini.draft()
    rounded = {name: t.astype(np.float16) for name, t in w.items() if "mlp" in name or name == "fc.weight"}
    expected = block(tmp_path / "rounded", config, {**w, **{n: t.astype(np.float64) for n, t in rounded.items()}})
    directory = mini.write(tmp_path / "exact", config, w)
    found = Reference.load(directory, weights=rounded).block(FEATURES, ANCHOR, CHOSEN)
    np.testing.assert_array_equal(found.logits, expected.logits)
    with pytest.raises(ValueError, match="has no tensor mlp"):
        Reference.load(directory, weights={"mlp": w["fc.weight"]})
    with pytest.raises(ValueError, match=r"fc.weight is \[4, 8\] in the checkpoint, its replacement \[8, 4\]"):
        Reference.load(directory, weights={"fc.weight": w["fc.weight"].T.copy()})


def test_tied_head_is_the_embedding_table(tmp_path: Path) -> None:
    config, w = mini.draft()
    w["lm_head.weight"] = w["embed_tokens.weight"].copy()
    expected = block(tmp_path / "two", config, w)
    del w["lm_head.weight"]
    found = block(tmp_path / "one", {**config, "tie_word_embeddings": True}, w)
    np.testing.assert_array_equal(found.logits, expected.logits)


def test_prefixed_and_sharded_checkpoint_is_the_same_draft(tmp_path: Path) -> None:
    config, w = mini.draft()
    expected = block(tmp_path / "flat", config, w)
    directory = tmp_path / "sharded"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shards: dict[str, dict[str, torch.Tensor]] = {"a.safetensors": {}, "b.safetensors": {}}
    for i, (name, tensor) in enumerate(w.items()):
        shards["ab"[i % 2] + ".safetensors"][f"model.{name}"] = torch.tensor(tensor)
    shards["b.safetensors"]["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(1)
    for file, tensors in shards.items():
        save_file(tensors, directory / file)
    save_file({"fc.weight": torch.zeros(1)}, directory / "left-over.safetensors")
    weight_map = {name: file for file, tensors in shards.items() for name in tensors}
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    found = Reference.load(directory).block(FEATURES, ANCHOR, CHOSEN)
    np.testing.assert_array_equal(found.logits, expected.logits)


@pytest.mark.parametrize(
    ("features", "anchor", "chosen", "words"),
    [
        (FEATURES[:, :4], ANCHOR, CHOSEN, r"features have to be \[n_past, 8\], found \[4, 4\]"),
        (FEATURES[0], ANCHOR, CHOSEN, r"found \[8\]"),
        (FEATURES, 6, CHOSEN, "3 chosen tokens below 6, found 6"),
        (FEATURES, ANCHOR, [1, -1, 0], r"found 3 and \[1, -1, 0\]"),
        (FEATURES, ANCHOR, [1, 2], "3 chosen tokens"),
    ],
)
def test_block_of_other_sizes(tmp_path: Path, features: Any, anchor: int, chosen: list[int], words: str) -> None:
    reference = Reference.load(mini.write(tmp_path / "draft", *mini.draft()))
    with pytest.raises(ValueError, match=words):
        reference.block(features, anchor, chosen)
