"""A DeepSeek-V4 draft in llama.cpp computes what the PyTorch reference does, and a wrong rotation shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.runtime.recording import read_recording
from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.rounding import dequantise
from dspark_convert.runtime.validation import validate
from tests.oracle import Expected
from tests.runtime.stage_pairs import StagePair, make_stage_pair

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = ["the cat sat on the mat and then it went home again", "once upon a time there was a little"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> StagePair:
    return make_stage_pair(tmp_path_factory.mktemp("stages"))


def widen_experts(want: Expected) -> None:
    """MXFP4 rounds the activations to 8 bits; of F32 there is nothing but the order of additions."""
    for name, (kind, shape, data) in list(want.tensors.items()):
        if kind == "MXFP4":
            rows = np.frombuffer(data, np.uint8).reshape(shape[2], shape[1], -1)
            values = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType.MXFP4)
            want.tensors[name] = ("F32", shape, np.float32(values).tobytes())


def turn_the_other_way(want: Expected) -> None:
    """Queries and keys as if NeoX pairs were to rotate: of each head's last 16, neighbours come to stand 8 apart."""
    widen_experts(want)
    order = [*range(16), *range(16, 32, 2), *range(17, 32, 2)]
    for name, (kind, shape, data) in list(want.tensors.items()):
        if name.endswith(("attn_q_b.weight", "attn_kv.weight", "attn_kv_a_norm.weight")):
            heads = np.frombuffer(data, np.float32).reshape(-1, 32, *reversed(shape[:-1]))
            want.tensors[name] = (kind, shape, np.ascontiguousarray(heads[:, order]).tobytes())


def run(pair: StagePair, draft: Path) -> ValidationReport:
    return validate(draft, pair.target, reference=pair.directory, prompts=PROMPTS, max_tokens=8)


def statuses(report: ValidationReport) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


def test_every_position_is_the_reference_s(pair: StagePair) -> None:
    report = run(pair, pair.written("f32", widen_experts, "f32"))
    found = statuses(report)
    right = ("draft", "pair", "metadata", "values", "load", "drafting", "lossless", "features", "parity", "confidence")
    assert {name: found[name] for name in right} == dict.fromkeys(right, "pass"), report.checks
    assert report.parity is not None
    assert report.parity.held is not None
    assert [position.position for position in report.parity.held.positions] == [0, 1, 2, 3, 4]
    assert all(position.relative < 2e-5 for position in report.parity.held.positions)
    choices = report.parity.held.choices
    assert choices is not None
    assert choices.made == 3 * 5 * report.parity.held.blocks
    assert choices.others == 0


@pytest.mark.parametrize("outtype", ["auto", "f32"])
def test_experts_in_mxfp4(pair: StagePair, outtype: str) -> None:
    """Their activations are rounded to 8 bits, on both sides alike."""
    report = run(pair, pair.written("fours", lambda _want: None, outtype))
    assert {statuses(report)[name] for name in ("values", "parity", "confidence")} == {"pass"}, report.checks
    assert report.parity is not None
    assert report.parity.held is not None
    assert report.parity.held.middle < 2e-5
    choices = report.parity.held.choices
    assert choices is not None
    assert choices.made == 15 * report.parity.held.blocks
    assert choices.furthest < 0.01
    (note,) = report.to_json()["parity"]["notes"]
    assert "slot k sees k + 1 target positions fewer" in note
    assert "blocks reach beyond the window" in note
    features = report.check("features")
    assert features is not None
    assert features.detail.endswith("no PyTorch model of a DeepSeek-V4 target")


@pytest.mark.parametrize("name", ["exp_probs_b.bias", "ffn_down_shexp.weight", "attn_norm.weight"])
def test_a_lost_tensor_shows(pair: StagePair, name: str) -> None:
    def lose(want: Expected) -> None:
        for layer in range(3):
            kind, shape, data = want.tensors[f"blk.{layer}.{name}"]
            want.tensors[f"blk.{layer}.{name}"] = (kind, shape, bytes(len(data)))

    assert statuses(run(pair, pair.written("lost", lose, "f32")))["parity"] == "fail"


def test_a_wrong_bias_of_the_router_shows_in_the_choices_alone(pair: StagePair) -> None:
    """It decides nothing else, and what is computed with llama.cpp's choices agrees."""

    def reverse(want: Expected) -> None:
        widen_experts(want)
        kind, shape, data = want.tensors["blk.1.exp_probs_b.bias"]
        want.tensors["blk.1.exp_probs_b.bias"] = (kind, shape, np.frombuffer(data, np.float32)[::-1].tobytes())

    report = run(pair, pair.written("bias", reverse, "f32"))
    parity = report.check("parity")
    assert parity is not None
    assert parity.status == "fail"
    assert "not the checkpoint's, up to" in parity.detail
    assert parity.detail.split("worse (0.0001 is allowed): ")[1].startswith("the router or its bias")
    assert report.parity is not None
    assert report.parity.held is not None
    assert all(position.relative < 2e-5 for position in report.parity.held.positions)


def test_a_library_that_shows_no_choices_is_told_of(pair: StagePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dspark_convert.runtime.proof.read_recording",
        lambda *place: replace(read_recording(*place), experts=np.empty(0, np.int64)),
    )
    report = run(pair, pair.written("unseen", widen_experts, "f32"))
    assert statuses(report)["parity"] == "pass"  # no two are so near in F32
    document = report.to_json()["parity"]
    assert document["choices"] is None
    assert document["notes"][0].startswith("this llama.cpp library does not show which experts it takes")


def test_another_rotation_shows_at_every_position(pair: StagePair) -> None:
    report = run(pair, pair.written("neox", turn_the_other_way, "f32"))
    found = statuses(report)
    assert (found["values"], found["parity"], found["metadata"]) == ("fail", "fail", "pass")
    assert report.parity is not None
    assert report.parity.held is not None
    assert all(position.relative > 0.1 for position in report.parity.held.positions)


def test_experts_of_a_large_draft_that_the_file_rounds_are_read_from_it(
    pair: StagePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounded = pair.written("rounded", round_experts)
    kept = run(pair, rounded).parity
    monkeypatch.setattr("dspark_convert.runtime.values.SMALL", 1)
    report = run(pair, rounded)
    assert statuses(report)["parity"] == "pass"
    assert kept is not None
    assert report.parity is not None
    assert report.parity.held == kept.held
    monkeypatch.setattr("dspark_convert.runtime.proof.dequantise", lambda *part: dequantise(*part) * 1.05)
    assert statuses(run(pair, rounded))["parity"] == "fail"


def round_experts(want: Expected) -> None:
    widen_experts(want)
    for name, (kind, shape, data) in list(want.tensors.items()):
        if "_exps." in name:
            values = np.frombuffer(data, np.float32).reshape(*reversed(shape))
            packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_0)
            want.tensors[name] = ("Q4_0", shape, packed.tobytes())
            assert kind == "F32"
