"""Everything that a session reads out of llama.cpp for a random draft, against the models in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fixtures.dspark_torch import DSpark
from fixtures.qwen3_torch import Qwen3
from tests.runtime.pairs import PairFiles, config
from tests.runtime.test_session import record

#: f32 on both sides; logits have a deviation near 1
TOLERANCE = 5e-5


@pytest.fixture(scope="module")
def run(random_pair: PairFiles) -> Any:
    return record(random_pair, n_tokens=24, prompt="Once upon a time there was")


@pytest.fixture(scope="module")
def streams(random_pair: PairFiles, run: Any) -> list[torch.Tensor]:
    """The target's residual streams of prompt and text."""
    target = Qwen3(config(random_pair.target_dir))
    target.load_checkpoint(random_pair.target_tensors())
    with torch.no_grad():
        logits, streams = target(torch.tensor([run["prompt"] + run["plain"]]))
    start = len(run["prompt"]) - 1
    expected = logits[0, start : start + len(run["plain"])].numpy()
    np.testing.assert_allclose(np.array(run["plain_logits"]), expected, atol=TOLERANCE)
    return list(streams)


def test_features(run: Any, streams: list[torch.Tensor]) -> None:
    expected = torch.cat([streams[tap][0] for tap in run["taps"]], dim=1).numpy()
    prompt = len(run["prompt"])
    np.testing.assert_allclose(np.array(run["prompt_features"]), expected[:prompt], atol=TOLERANCE)
    for entry in run["rounds"]:
        rows = expected[entry["position"] : entry["position"] + entry["accepted"] + 1]
        np.testing.assert_allclose(np.array(entry["features"])[: len(rows)], rows, atol=TOLERANCE)


def test_logits_and_confidences_at_every_position(
    random_pair: PairFiles, run: Any, streams: list[torch.Tensor]
) -> None:
    draft = DSpark(config(random_pair.draft_dir))
    draft.load_state_dict({name: tensor.float() for name, tensor in random_pair.draft_tensors().items()})
    with torch.no_grad():
        context = draft.context(streams)
        for entry in run["rounds"]:
            anchors = torch.tensor([[entry["position"]]])
            hidden = draft.hidden(context, anchors, torch.tensor([[entry["anchor"]]]))[0, 0]
            previous = torch.tensor([entry["anchor"], *entry["drafts"][:-1]])
            logits = draft.biased_logits(hidden, previous).numpy()
            np.testing.assert_allclose(np.array(entry["logits"]), logits, atol=TOLERANCE)
            confidences = torch.sigmoid(draft.confidence(hidden, previous)).numpy()
            np.testing.assert_allclose(np.array(entry["confidences"]), confidences, atol=TOLERANCE)
