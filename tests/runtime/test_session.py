"""What a session reads out of llama.cpp, against values computed from the checkpoints by hand."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark_convert.runtime.guard import run_job
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.shape import DraftShape
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, bigram_logits, make_random_pair, normed_embeddings

SCRIPT = str(Path(__file__).with_name("record_job.py"))
PROMPT = "the small boat"
SHAPE = DraftShape(7, reads_anchor=True, mask_token_id=507, causal=False, has_confidence_head=True)


def record(
    pair: PairFiles, shape: DraftShape = SHAPE, draft: Path | None = None, n_tokens: int = 20, prompt: str = PROMPT
) -> Any:
    job = {
        "library": str(find_library().path),
        "target": str(pair.target),
        "draft": str(draft or pair.draft),
        "shape": asdict(shape),
        "prompt": prompt,
        "n_positions": 100,
        "n_tokens": n_tokens,
    }
    outcome = run_job(job, timeout=60, arguments=(SCRIPT,))
    assert outcome.result is not None, (outcome.fault, outcome.log[-5:])
    return outcome.result


@pytest.fixture(scope="module")
def bigram(bigram_pair: PairFiles) -> Any:
    return record(bigram_pair)


def test_text_is_the_bigram_s(bigram: Any, bigram_pair: PairFiles) -> None:
    follows = bigram_logits(bigram_pair.target_tensors()).argmax(dim=1)
    last = bigram["prompt"][-1]
    expected = [last := int(follows[last]) for _ in range(20)]
    assert bigram["plain"] == expected
    assert bigram["tokens"][:20] == expected


def test_perfect_draft_is_accepted_whole(bigram: Any) -> None:
    assert [entry["accepted"] for entry in bigram["rounds"]] == [7] * 3
    assert [entry["position"] for entry in bigram["rounds"]] == [
        len(bigram["prompt"]),
        len(bigram["prompt"]) + 8,
        len(bigram["prompt"]) + 16,
    ]


def test_block_s_logits_are_the_markov_head_s(bigram: Any, bigram_pair: PairFiles) -> None:
    logits = bigram_logits(bigram_pair.target_tensors()).numpy()
    for entry in bigram["rounds"]:
        before = [entry["anchor"], *entry["drafts"][:-1]]
        np.testing.assert_allclose(np.array(entry["logits"]), logits[before], atol=2e-3)


def test_confidences_are_the_confidence_head_s(bigram: Any, bigram_pair: PairFiles) -> None:
    draft = bigram_pair.draft_tensors()
    weight = draft["confidence_head.proj.weight"][0, 128:]  # the hidden state is some 1e-4 in this draft
    table = torch.sigmoid(normed_embeddings(bigram_pair.target_tensors()) @ weight + draft["confidence_head.proj.bias"])
    for entry in bigram["rounds"]:
        before = [entry["anchor"], *entry["drafts"][:-1]]
        np.testing.assert_allclose(entry["confidences"], table[before].numpy(), atol=1e-3)


def test_features_are_the_layer_inputs_of_the_right_tokens(bigram: Any, bigram_pair: PairFiles) -> None:
    embeddings = bigram_pair.target_tensors()["model.embed_tokens.weight"].numpy()
    assert bigram["taps"] == [1, 2, 3]
    np.testing.assert_array_equal(np.array(bigram["prompt_features"]), np.tile(embeddings[bigram["prompt"]], 3))
    for entry in bigram["rounds"]:
        tokens = [entry["anchor"], *entry["drafts"]]
        np.testing.assert_array_equal(np.array(entry["features"]), np.tile(embeddings[tokens], 3))


def test_gaps_are_those_of_the_two_best_logits(bigram: Any) -> None:
    best = np.sort(np.array(bigram["plain_logits"]), axis=1)[:, -2:]
    np.testing.assert_allclose(bigram["gaps"], best[:, 1] - best[:, 0], atol=1e-6)


def test_noise_is_small_and_measured(bigram: Any, random_pair: PairFiles) -> None:
    assert 0 <= bigram["noise"] < 1e-4
    assert 0 < record(random_pair)["noise"] < 1e-4


def test_bonus_anchor_draft_is_read_from_slot_1(bigram_pair: PairFiles) -> None:
    draft = bigram_pair.broken("bonus", lambda want: want.kv.update({"dflash.sample_from_anchor": ("BOOL", False)}))
    shape = DraftShape(7, reads_anchor=False, mask_token_id=507, causal=False, has_confidence_head=True)
    run = record(bigram_pair, shape, draft)
    assert [len(entry["drafts"]) for entry in run["rounds"]] == [6] * 3
    assert [entry["accepted"] for entry in run["rounds"]] == [6] * 3


def test_rejected_drafts_leave_no_trace(random_pair: PairFiles) -> None:
    """A random draft is nearly always wrong, and the text is the target's nevertheless."""
    run = record(random_pair, n_tokens=40, prompt="Once upon a time")
    assert len(run["plain"]) == 40
    assert run["tokens"][:40] == run["plain"]
    assert sum(entry["accepted"] for entry in run["rounds"]) < 10
    positions = [entry["position"] for entry in run["rounds"]]
    steps = [entry["accepted"] + 1 for entry in run["rounds"][:-1]]
    assert np.diff(positions).tolist() == steps


def test_draft_depends_on_the_features(random_pair: PairFiles) -> None:
    """Two rounds with one anchor differ only in what was injected before."""
    run = record(random_pair, n_tokens=40, prompt="Once upon a time")
    by_anchor: dict[int, list[Any]] = {}
    for entry in run["rounds"]:
        by_anchor.setdefault(entry["anchor"], []).append(entry["logits"])
    repeated = [logits for logits in by_anchor.values() if len(logits) > 1]
    assert repeated
    assert np.abs(np.array(repeated[0][0]) - np.array(repeated[0][1])).max() > 0.1


@pytest.mark.parametrize("taps", [(1,), (0, 3)])
def test_injection_is_recognised_for_any_number_of_taps(tmp_path: Path, taps: tuple[int, ...], bigram: Any) -> None:
    protocol = bigram["protocol"]  # seen with three taps
    pair = make_random_pair(tmp_path, target_layer_ids=taps, target_layers_count=5, seed=3)
    assert record(pair)["protocol"] == protocol


def test_draft_that_ignores_its_target_is_refused(random_pair: PairFiles) -> None:
    def change(want: Expected) -> None:
        kind, shape, data = want.tensors["output_norm.weight"]
        want.tensors["output_norm.weight"] = (kind, shape, bytes(len(data)))

    with pytest.raises(AssertionError, match="does not depend on the target's features"):
        record(random_pair, draft=random_pair.broken("deaf", change))
