"""What the child hands over: bounded, whole, and what the target really decoded."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.guard import run_job
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.recording import (
    MAX_BYTES,
    MAX_ROUNDS,
    Recording,
    make_recording,
    read_recording,
    rounds_to_keep,
)
from dspark_convert.runtime.shape import DraftShape
from fixtures.qwen3_torch import Qwen3
from tests.runtime.pairs import PairFiles, config

SHAPE = DraftShape(7, reads_anchor=True, mask_token_id=507, causal=False, has_confidence_head=True)


def record(
    pair: PairFiles,
    directory: Path,
    draft: Path | None = None,
    shape: DraftShape = SHAPE,
    layers: tuple[int, ...] = (0, 2),
) -> Recording:
    job = {
        "library": str(find_library().path),
        "target": str(pair.target),
        "draft": str(draft or pair.draft),
        "shape": asdict(shape),
        "prompts": ["the small boat", "Once upon a time"],
        "max_tokens": 40,
        "record": {"directory": str(directory), "layers": layers},
    }
    outcome = run_job(job, timeout=60)
    assert outcome.result is not None, (outcome.fault, outcome.log[-5:])
    assert outcome.result["taps"] == [1, 2, 3]
    assert {path.name for path in directory.iterdir()} == {"0.npz", "1.npz"}
    return read_recording(directory, 1)


def test_recording_is_what_the_target_decoded(random_pair: PairFiles, tmp_path: Path) -> None:
    recording = record(random_pair, tmp_path)
    assert recording.layers.tolist() == [0, 1, 2, 3]  # the taps and what was asked for
    assert len(recording.positions) == MAX_ROUNDS
    assert recording.logits.shape == (MAX_ROUNDS, 7, 512)
    assert recording.logits.dtype == np.float32
    assert recording.confidences.shape == (MAX_ROUNDS, 7)
    np.testing.assert_array_equal(recording.slots, recording.logits.argmax(axis=2))
    np.testing.assert_array_equal(recording.tokens[recording.positions], recording.anchors)
    # up to the last recorded round, and no further
    assert recording.positions[-1] < len(recording.tokens) <= recording.positions[-1] + 8
    target = Qwen3(config(random_pair.target_dir))
    target.load_checkpoint(random_pair.target_tensors())
    with torch.no_grad():
        _, streams = target(torch.from_numpy(recording.tokens)[None])
    for index, layer in enumerate(recording.layers.tolist()):
        np.testing.assert_allclose(recording.inputs[:, index], streams[layer][0].numpy(), atol=5e-5)
    features = recording.features((3, 1), 5)
    assert features.shape == (5, 2 * 128)
    np.testing.assert_array_equal(features[:, 128:], recording.inputs[:5, 1])


def test_a_text_that_ends_at_once_has_no_rounds() -> None:
    """Nor candidates, where a selector chooses."""
    session = SimpleNamespace(watched=[1, 2], shape=SimpleNamespace(selector_top_k=8))
    run = SimpleNamespace(watched=[np.zeros((3, 2, 16), np.float32)], rounds=[], tokens=[7])
    recording = make_recording(session, run, [4, 5, 6])
    assert recording.tokens.tolist() == [4, 5, 6]
    assert (len(recording.positions), recording.candidates.size, recording.scores.size) == (0, 0, 0)


def test_slots_that_propose_nothing_are_recorded_too(random_pair: PairFiles, tmp_path: Path) -> None:
    shape = DraftShape(7, reads_anchor=False, mask_token_id=507, causal=False, has_confidence_head=False)
    draft = random_pair.broken("bonus", lambda want: want.kv.update({"dflash.sample_from_anchor": ("BOOL", False)}))
    recording = record(random_pair, tmp_path, draft, shape, ())
    assert recording.slots.shape == (MAX_ROUNDS, 7)
    assert recording.logits.shape == (MAX_ROUNDS, 6, 512)
    assert recording.confidences.size == 0
    np.testing.assert_array_equal(recording.slots[:, 1:], recording.logits.argmax(axis=2))


def test_directory_that_takes_nothing(tmp_path: Path) -> None:
    empty: Any = np.empty(0)
    recording = Recording(*[empty] * 11)
    with pytest.raises(EnvironmentFault, match=r"none cannot take what is to be compared \(No such file.* TMPDIR"):
        recording.write(tmp_path / "none", 0)


@pytest.mark.parametrize("n_vocab", [512, 151_936, 262_144, 10**9])
@pytest.mark.parametrize("n_prompts", [1, 8, 100])
def test_what_is_kept_is_bounded(n_vocab: int, n_prompts: int) -> None:
    rounds = rounds_to_keep(n_prompts, 7, n_vocab)
    assert 1 <= rounds <= MAX_ROUNDS
    assert rounds == 1 or rounds * n_prompts * 7 * n_vocab * 4 <= MAX_BYTES
    if n_vocab <= 151_936 and n_prompts <= 8:
        assert rounds >= 7
