"""DeepSeek-V4's draft, against loops over Python's floats and numbers worked out by hand."""

from __future__ import annotations

from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark_convert.reference.deepseek4 import Stage, visible
from dspark_convert.reference.draft import Reference
from dspark_convert.reference.hyper_connections import sinkhorn
from dspark_convert.reference.inputs import round_input
from dspark_convert.reference.qwen3 import Sizes
from dspark_convert.reference.weights import Weights
from fixtures.deepseek4 import make_deepseek4
from tests.reference import deepseek4_loops as loops

#: float64 on both sides
EXACT = 1e-10

#: rows of 40 numbers end inside a tile of 16; experts' rows are multiples of 32
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "head_dim": 6,
    "qk_rope_head_dim": 4,
    "q_lora_rank": 10,
    "o_groups": 2,
    "o_lora_rank": 5,
    "moe_intermediate_size": 32,
    "n_routed_experts": 5,
    "num_experts_per_tok": 2,
    "hc_sinkhorn_iters": 4,
    "hc_eps": 1e-3,
    "rms_norm_eps": 1e-3,
    "sliding_window": 3,
    "vocab_size": 12,
    "dspark_block_size": 3,
    "dspark_noise_token_id": 7,
    "dspark_markov_rank": 4,
    "dspark_target_layer_ids": [0, 1],
    "num_hidden_layers": 2,
    "compress_ratios": [0] * 5,
    "quantization_config": {"weight_block_size": [16, 16]},
}
ANCHOR, CHOSEN = 3, [2, 4, 0]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_deepseek4(tmp_path_factory.mktemp("v4"), stages=2, **SMALL)


@pytest.mark.parametrize("by_distance", [False, True])
@pytest.mark.parametrize("n_past", [1, 5])
def test_block_worked_out_in_loops(checkpoint: Path, n_past: int, by_distance: bool) -> None:
    features = np.random.default_rng(3).normal(size=(n_past, 2 * 32))
    found = Reference.load(checkpoint, window_by_distance=by_distance).block(features, ANCHOR, CHOSEN)

    own = loops.Loops(checkpoint)
    first = max(0, n_past - 3)
    states, collapsed = own.block(
        features.tolist(), ANCHOR, 2, lambda slot: max(0, n_past + slot - 3 + 1) if by_distance else first
    )
    previous = [ANCHOR, *CHOSEN[:-1]]
    rows = [own.file.matrix("mtp.1.markov_head.markov_w1.weight")[token] for token in previous]
    logits = [
        [a + b for a, b in zip(own.times("head.weight", x), own.times(W2, row), strict=True)]
        for x, row in zip(states, rows, strict=True)
    ]
    np.testing.assert_allclose(found.logits, logits, atol=EXACT)
    proj = "mtp.1.confidence_head.proj.weight"
    confidence = [loops.sigmoid(own.times(proj, x + row)[0]) for x, row in zip(collapsed, rows, strict=True)]
    np.testing.assert_allclose(np.asarray(found.confidence), confidence, atol=EXACT)


W2 = "mtp.1.markov_head.markov_w2.weight"


def test_large_models_are_computed_in_float32(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(3).normal(size=(5, 2 * 32))
    exact = Reference.load(checkpoint).block(features, ANCHOR, CHOSEN)
    monkeypatch.setattr("dspark_convert.reference.weights.SMALL", 1)
    monkeypatch.setattr("dspark_convert.reference.deepseek4_weights.SMALL", 1)
    rough = Reference.load(checkpoint).block(features, ANCHOR, CHOSEN)
    assert rough.logits.dtype == np.float32
    np.testing.assert_allclose(rough.logits, exact.logits, atol=2e-5)


def test_sinkhorn_by_hand() -> None:
    found = sinkhorn(torch.tensor([[[0.0, log(3)], [0.0, 0.0]]], dtype=torch.float64), 0.0, 1)
    # rows: 1/4 3/4 and 1/2 1/2; then columns of sums 3/4 and 5/4
    np.testing.assert_allclose(found[0], [[1 / 3, 3 / 5], [2 / 3, 2 / 5]], atol=EXACT)
    twice = sinkhorn(torch.tensor([[[0.0, log(3)], [0.0, 0.0]]], dtype=torch.float64), 0.0, 200)[0]
    np.testing.assert_allclose(twice.sum(0), 1, atol=EXACT)
    np.testing.assert_allclose(twice.sum(1), 1, atol=EXACT)


def test_sinkhorn_adds_eps_to_the_softmax_and_to_every_sum() -> None:
    found = sinkhorn(torch.zeros(1, 2, 2, dtype=torch.float64), 0.5, 2)
    first = 1 / (2 + 0.5)  # (1/2 + 1/2) in each place
    row = first / (2 * first + 0.5)
    np.testing.assert_allclose(found, np.full((1, 2, 2), row / (2 * row + 0.5)), atol=EXACT)


def stage(checkpoint: Path, **weights: list[Any]) -> Stage:
    """Stage 0 of the small checkpoint with other ``weights`` (``__`` for a dot)."""
    facts = Reference.load(checkpoint).facts
    assert facts.stages is not None
    tensors = {f"mtp.0.{name.replace('__', '.')}": torch.tensor(w, dtype=torch.float64) for name, w in weights.items()}
    sizes = Sizes(32, 32, heads=4, kv=1, head_dim=6, eps=0.0, theta=10000.0)
    return Stage(Weights(tensors), 0, sizes, facts.stages)


def test_the_routers_bias_chooses_and_does_not_weigh(checkpoint: Path) -> None:
    gate = [[log(value)] for value in (1.0, 3.0, 8.0, 0.5, 0.25)]  # softplus(log v) = log(1 + v)
    own = stage(checkpoint, ffn__gate__weight=gate, ffn__gate__bias=[9.0, 0.0, -9.0, 0.0, 0.0])
    chosen, shares, _ = own.route(torch.ones(1, 1, dtype=torch.float64))
    assert sorted(chosen[0].tolist()) == [0, 1]
    first, second = sqrt(log(2.0)), sqrt(log(4.0))
    expected = {0: 1.5 * first / (first + second), 1: 1.5 * second / (first + second)}
    assert {e: pytest.approx(s) for e, s in zip(chosen[0].tolist(), shares[0].tolist(), strict=True)} == expected


def test_experts_that_are_given_are_taken_and_are_behind_by_deviations(checkpoint: Path) -> None:
    values = (1.0, 3.0, 8.0, 0.5, 0.25)
    own = stage(checkpoint, ffn__gate__weight=[[log(v)] for v in values], ffn__gate__bias=[0.0] * 5)
    taken = torch.tensor([[-1, -1], [0, 2], [1, 2]])
    chosen, shares, behind = own.route(torch.ones(3, 1, dtype=torch.float64), taken)
    assert chosen.tolist() == [[2, 1], [0, 2], [1, 2]]
    scores = [sqrt(log(1 + v)) for v in values]
    expected = (scores[1] - scores[0]) / np.std(scores)
    np.testing.assert_allclose(behind, [0, expected, 0], atol=EXACT)
    np.testing.assert_allclose(
        shares[1], [1.5 * s / (scores[2] + scores[0]) for s in (scores[0], scores[2])], atol=EXACT
    )


def test_rope_turns_neighbours_at_the_end_of_a_head(checkpoint: Path) -> None:
    x = torch.tensor([[[1.0, 2.0, 1.0, 0.0, 0.0, 1.0]]], dtype=torch.float64)
    turned = stage(checkpoint).turn(x, torch.tensor([1]))
    expected = [1, 2, np.cos(1), np.sin(1), -np.sin(0.01), np.cos(0.01)]  # angles 1 and 10000^(-1/2)
    np.testing.assert_allclose(turned[0, 0], expected, atol=EXACT)
    np.testing.assert_allclose(stage(checkpoint).turn(turned, torch.tensor([1]), back=True), x, atol=EXACT)


def test_a_sink_takes_its_share(checkpoint: Path) -> None:
    """Queries of zeros see all keys alike; with sinks of 0 and log 3 the share of one key is 1/2 and 1/4."""
    sinks = [0.0, 0.0, log(3), log(3)]
    rows = (torch.eye(10, 12).tolist(), torch.eye(24, 10).tolist())
    own = stage(checkpoint, attn__attn_sink=sinks, attn__wo_a__weight=rows[0], attn__wo_b__weight=rows[1])
    keys = torch.tensor([[8.0, 4.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    sees = torch.ones(1, 1, dtype=torch.bool)
    out = own.attend(torch.zeros(1, 4, 6, dtype=torch.float64), keys, torch.tensor([0]), sees)
    # two groups of two heads of six numbers; wo_a takes numbers 0 to 4 of the first group, 5 to 9 of the second
    np.testing.assert_allclose(out[0, :10], [4, 2, 0, 0, 0, 0, 2, 1, 0, 0], atol=EXACT)


def test_swiglu_is_cut_off(checkpoint: Path) -> None:
    names = {"ffn__shared_experts__w1__weight": [[1.0, 0.0]], "ffn__shared_experts__w3__weight": [[0.0, 1.0]]}
    own = stage(checkpoint, **names, ffn__shared_experts__w2__weight=[[1.0]])
    h = torch.tensor([[9.0, 1.0], [-9.0, 1.0], [1.0, 9.0], [1.0, -9.0]], dtype=torch.float64)
    silu = [x / (1 + np.exp(-x)) for x in (2.5, -9.0, 1.0, 1.0)]
    expected = np.multiply(silu, [1, 1, 2.5, -2.5])
    np.testing.assert_allclose(own.expert(h, "ffn.shared_experts")[:, 0], expected, atol=EXACT)


def test_windows() -> None:
    assert visible(4, 2, 3, by_distance=False).int().tolist() == [[0, 1, 1, 1, 1, 1]] * 2
    assert visible(4, 2, 3, by_distance=True).int().tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]
    assert visible(1, 2, 3, by_distance=True).all() and visible(1, 2, 3, by_distance=False).all()


def test_inputs_are_rounded_as_ggml_does() -> None:
    import gguf
    from gguf.quants import dequantize, quantize

    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    x[1, :32] = 0
    rounded = round_input(x.double(), "q8_0").numpy()
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    np.testing.assert_allclose(rounded, dequantize(quantize(x.numpy(), q8_0), q8_0), atol=1e-7)
    bf16 = gguf.GGMLQuantizationType.BF16
    assert np.array_equal(round_input(x.double(), "bf16").numpy(), dequantize(quantize(x.numpy(), bf16), bf16))
    assert np.array_equal(round_input(x.double(), "f16").numpy(), x.numpy().astype(np.float16))
    assert not np.array_equal(rounded, x)


def test_q8_k_takes_127_steps_to_the_number_furthest_from_zero() -> None:
    """Worked out in Python's numbers: with -4 furthest, a step is 4 / 127 and 3 is 95.25 of them."""
    x = torch.zeros(1, 3 * 256, dtype=torch.float64)
    x[0, :4] = torch.tensor([-4.0, 3.0, 1.0, 1.5 * 4 / 127])
    x[0, 256:258] = torch.tensor([2.0, -1.0])
    rounded = round_input(x, "q8_k")
    expected = torch.zeros_like(x)
    expected[0, :4] = torch.tensor([-127, 95, 32, 2]) * (4 / 127)
    expected[0, 256:258] = torch.tensor([127, -64]) * (2 / 127)  # 63.5 to the even one
    np.testing.assert_allclose(rounded, expected, rtol=3e-7)
