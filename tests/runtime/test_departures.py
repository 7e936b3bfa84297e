"""What llama.cpp computes otherwise than a draft is defined is told, and measured where it matters."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_convert.reference.draft import Reference
from dspark_convert.runtime.departures import as_llama_computes, departures, describe_departure
from dspark_convert.runtime.recording import Recording
from fixtures.deepseek4 import make_deepseek4
from fixtures.families import make

SLOTS, HIDDEN, VOCAB = 5, 192, 512


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_deepseek4(tmp_path_factory.mktemp("v4") / "model")


def recording(*positions: int) -> Recording:
    rng = np.random.default_rng(2)
    rounds = len(positions)
    return Recording(
        tokens=np.arange(40),
        layers=np.array([2, 3, 4]),
        inputs=rng.standard_normal((40, 3, HIDDEN)).astype(np.float32),
        positions=np.array(positions),
        anchors=np.full(rounds, 11),
        slots=np.full((rounds, SLOTS), 7),
        logits=np.zeros((rounds, SLOTS, VOCAB), np.float32),
        confidences=np.zeros((rounds, SLOTS), np.float32),
        experts=np.empty(0, np.int64),
        candidates=np.empty(0, np.int64),
        scores=np.empty(0, np.float32),
    )


def note(checkpoint: Path, *positions: int) -> str:
    return told(checkpoint, recording(*positions))


def told(checkpoint: Path, run: Recording) -> str:
    own = Reference.load(checkpoint, window_by_distance=True)
    (departure,) = departures(own.facts, False)
    return describe_departure(departure, [run], own, partial(Reference.load, checkpoint))


@pytest.mark.parametrize("odd", [{"beta_fast": 4}, {"beta_slow": 2}, {"truncate": False}])
def test_yarn_s_ramp_is_llama_cpp_s(odd: dict[str, Any], tmp_path: Path) -> None:
    make("specforge_yarn", tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    load = partial(Reference.load, tmp_path, embed=np.ones((512, 128)), head=np.eye(512, 128))
    plain = load()
    assert list(departures(plain.facts, False)) == []
    config["rope_parameters"] |= odd
    path.write_text(json.dumps(config), encoding="utf-8")
    defined = load()
    (departure,) = departures(defined.facts, False)
    ((name, value),) = odd.items()
    assert ("without rounding" if name == "truncate" else f"{value}") in departure.told
    computed = load(**as_llama_computes(defined.facts, False))
    run = np.random.default_rng(1).standard_normal((40, 3 * 128)), 11, [7] * 7
    angles = load(float32_angles=True).block(*run).logits
    np.testing.assert_allclose(computed.block(*run).logits, plain.block(*run).logits, atol=1e-3)
    assert np.abs(angles - computed.block(*run).logits).max() > 1e-2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zlab_dflash", "multiplies the logits by 0.5, which leaves their order as it is; llama.cpp does not"),
        ("specforge", "multiplies the logits by 0.5 before it adds the Markov bias; llama.cpp does not"),
    ],
)
def test_a_scale_matters_where_something_is_added(name: str, said: str, tmp_path: Path) -> None:
    make(name, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dflash_config"]["output_multiplier"] = 0.5
    path.write_text(json.dumps(config), encoding="utf-8")
    facts = Reference.load(tmp_path, embed=np.ones((512, 128)), head=np.eye(512, 128)).facts
    (departure,) = departures(facts, False)
    assert said in departure.told


def test_within_the_window_both_are_the_same(checkpoint: Path) -> None:
    """The last slot of a block at 3 stands at 7, and sees position 0."""
    assert note(checkpoint, 1, 3).endswith("no block here reaches beyond the window, where both are the same")


def test_beyond_it_the_cost_is_told(checkpoint: Path) -> None:
    text = note(checkpoint, 3, 4, 20, 30)
    assert "3 blocks reach beyond the window, and in 3 of them" in text
    low, high = (float(word) for word in text.split("the logits by ")[1].split(" of")[0].split(" to "))
    assert 0.05 < low <= high < 10


def test_a_few_blocks_tell(checkpoint: Path) -> None:
    assert "9 blocks reach beyond the window, and in 3 of them" in note(checkpoint, *range(20, 29))


def test_a_file_of_another_block_size(checkpoint: Path) -> None:
    short = recording(20)
    short = replace(short, slots=short.slots[:, :4], logits=short.logits[:, :4])
    text = told(checkpoint, short)
    assert "1 block reaches beyond the window, and in 1 of them that moves the logits by " in text
    assert " to " not in text.split("moves the logits by ")[1]
