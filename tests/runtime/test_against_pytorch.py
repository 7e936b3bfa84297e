"""Everything that a session reads out of llama.cpp for a random draft, against the models in PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dspark_convert.runtime.precheck import precheck
from fixtures.dspark_torch import DSpark
from fixtures.qwen3_torch import Qwen3
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, config
from tests.runtime.test_session import SHAPE, record

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPT = "Once upon a time there was"

#: f32 on both sides; logits have a deviation near 1
TOLERANCE = 5e-5


@pytest.fixture(scope="module")
def run(random_pair: PairFiles) -> Any:
    return record(random_pair, n_tokens=24, prompt=PROMPT)


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


def load_draft(pair: PairFiles, **changes: Any) -> DSpark:
    draft = DSpark({**config(pair.draft_dir), **changes})
    draft.load_state_dict({name: tensor.float() for name, tensor in pair.draft_tensors().items()})
    return draft


def block_states(draft: DSpark, streams: list[torch.Tensor], entry: Any) -> torch.Tensor:
    """The draft's final states [block, hidden] of one round."""
    anchors = torch.tensor([[entry["position"]]])
    return draft.hidden(draft.context(streams), anchors, torch.tensor([[entry["anchor"]]]))[0, 0]


def test_logits_and_confidences_at_every_position(
    random_pair: PairFiles, run: Any, streams: list[torch.Tensor]
) -> None:
    draft = load_draft(random_pair)
    with torch.no_grad():
        for entry in run["rounds"]:
            hidden = block_states(draft, streams, entry)
            previous = torch.tensor([entry["anchor"], *entry["drafts"][:-1]])
            logits = draft.biased_logits(hidden, previous).numpy()
            np.testing.assert_allclose(np.array(entry["logits"]), logits, atol=TOLERANCE)
            confidences = torch.sigmoid(draft.confidence(hidden, previous)).numpy()
            np.testing.assert_allclose(np.array(entry["confidences"]), confidences, atol=TOLERANCE)


def test_causal_flag_hides_the_masks_behind_a_position(random_pair: PairFiles, streams: list[torch.Tensor]) -> None:
    """A causal block's first position sees what the only position of a block of one sees."""
    path = random_pair.broken("causal", lambda want: want.kv.update({"dflash.attention.causal": ("BOOL", True)}))
    run = record(random_pair, replace(SHAPE, causal=True), path, 24, PROMPT)
    draft = load_draft(random_pair, block_size=1)
    with torch.no_grad():
        for entry in run["rounds"]:
            first = draft.biased_logits(block_states(draft, streams, entry), torch.tensor([entry["anchor"]]))
            np.testing.assert_allclose(np.array(entry["logits"])[:1], first.numpy(), atol=TOLERANCE)


def test_draft_without_heads_is_read_from_slot_1(random_pair: PairFiles, streams: list[torch.Tensor]) -> None:
    def change(want: Expected) -> None:
        for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
            del want.tensors[name]
        want.kv["dflash.sample_from_anchor"] = want.kv["dflash.has_confidence_head"] = ("BOOL", False)

    path = random_pair.broken("dflash", change)
    _, shape = precheck(path, random_pair.target)
    assert shape == replace(SHAPE, reads_anchor=False, has_confidence_head=False, kind="dflash")
    run = record(random_pair, shape, path, 24, PROMPT)
    draft = load_draft(random_pair)
    with torch.no_grad():
        for entry in run["rounds"]:
            assert entry["confidences"] is None
            logits = draft.lm_head(block_states(draft, streams, entry))[1:]
            np.testing.assert_allclose(np.array(entry["logits"]), logits.numpy(), atol=TOLERANCE)
