"""The figures of a comparison, on arrays whose differences are known, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_convert.ggufio.types import GGMLType
from dspark_convert.reference.draft import Block
from dspark_convert.reference.facts import Facts, read_facts
from dspark_convert.runtime.noise import COARSEST, EXACT, TOLERANCES, target_tolerance, tolerance_for
from dspark_convert.runtime.parity import Comparison, Feature, Position, compare_blocks, compare_features
from dspark_convert.runtime.parity_verdict import Parity, judge_parity
from dspark_convert.runtime.recording import Recording
from tests.runtime.pairs import PairFiles

VOCAB, HIDDEN = 512, 128


@pytest.fixture(scope="module")
def facts(random_pair: PairFiles) -> Facts:
    return read_facts(random_pair.draft_dir)


class Known:
    """A reference that gives what it was told, and remembers what it was asked."""

    def __init__(self, facts: Facts, logits: Any, confidence: Any) -> None:
        self.facts = facts
        self.logits, self.confidence = logits, confidence
        self.asked: list[tuple[Any, int, list[int]]] = []

    def block(self, features: Any, anchor: int, chosen: list[int], *_given: Any) -> Block:
        self.asked.append((features, anchor, chosen))
        return Block(self.logits, self.confidence)


def recording(rng: np.random.Generator, logits: Any, confidences: Any, slots: int = 7) -> Recording:
    rounds = len(logits)
    return Recording(
        tokens=np.arange(10),
        layers=np.array([1, 2, 3, 9]),
        inputs=rng.standard_normal((10, 4, HIDDEN)).astype(np.float32),
        positions=np.arange(4, 4 + rounds),
        anchors=np.full(rounds, 11),
        slots=np.tile(np.arange(100, 100 + slots), (rounds, 1)),
        logits=np.array(logits, np.float32),
        confidences=np.array(confidences, np.float32),
        experts=np.empty(0, np.int64),
        candidates=np.empty(0, np.int64),
        scores=np.empty(0, np.float32),
    )


def test_largest_difference_over_the_deviation(facts: Facts) -> None:
    rng = np.random.default_rng(0)
    want = rng.standard_normal((7, VOCAB)) * np.arange(1, 8)[:, None]
    first, second = want.copy(), want.copy()
    first[2, 7] += 0.5
    second[2, 8] -= 0.75
    second[5, int(want[5].argmax())] -= 100.0
    confidence = np.linspace(0.1, 0.7, 7)
    seen = recording(rng, [first, second], [confidence, confidence + np.array([0, 0, 0, 0.01, 0, 0, 0])])
    known: Any = Known(facts, want, confidence)
    (found,) = compare_blocks([seen], [known])
    assert found.blocks == 2
    assert found.confidence_max_abs == pytest.approx(0.01, abs=1e-6)
    assert [position.position for position in found.positions] == list(range(7))
    assert found.positions[2].max_abs == pytest.approx(0.75, abs=1e-6)
    assert found.positions[2].relative == pytest.approx(0.75 / want[2].std(), abs=1e-6)
    assert found.positions[3].max_abs < 1e-6
    assert [position.argmax_agree for position in found.positions] == [1, 1, 1, 1, 1, 0.5, 1]
    # features of the tokens before the block, at the checkpoint's taps; the tokens that llama.cpp chose
    features, anchor, chosen = known.asked[1]
    np.testing.assert_array_equal(features, seen.inputs[:5, :3].reshape(5, -1))
    assert (anchor, chosen) == (11, list(range(100, 107)))


def test_blocks_of_another_length_are_compared_as_far_as_both_go(facts: Facts) -> None:
    rng = np.random.default_rng(0)
    want = rng.standard_normal((7, VOCAB))
    short: Any = Known(facts, want, None)
    (found,) = compare_blocks([recording(rng, [want[:5]], [[]], slots=5)], [short])
    assert len(found.positions) == 5
    assert found.confidence_max_abs is None
    assert short.asked[0][2] == [100, 101, 102, 103, 104, 507, 507]
    (found,) = compare_blocks([recording(rng, [np.concatenate((want, want[:2]))], [[]], slots=9)], [short])
    assert len(found.positions) == 7
    assert found.positions[6].max_abs < 1e-6


def test_bonus_anchor_is_compared_from_slot_1(facts: Facts) -> None:
    rng = np.random.default_rng(0)
    want = rng.standard_normal((7, VOCAB))
    confidence = np.array([np.nan, *[0.5] * 6])
    known: Any = Known(replace(facts, sample_from_anchor=False), want, confidence)
    (found,) = compare_blocks([recording(rng, [want[1:]], [[0.5] * 6])], [known])
    assert len(found.positions) == 6
    assert max(position.max_abs for position in found.positions) < 1e-6
    assert found.confidence_max_abs == 0


def test_infinities_and_nan_are_no_agreement(facts: Facts) -> None:
    rng = np.random.default_rng(0)
    want = rng.standard_normal((7, VOCAB))
    want[:, 3] = -np.inf
    known: Any = Known(facts, want, np.full(7, 0.5))
    (found,) = compare_blocks([recording(rng, [want], [[0.5] * 7])], [known])
    assert found.positions[0].max_abs < 1e-6
    other = want.copy()
    other[1, 3], other[2, 4] = 0.0, -np.inf
    (found,) = compare_blocks([recording(rng, [other], [[np.nan] * 7])], [known])
    assert [position.max_abs == np.inf for position in found.positions] == [False, True, True, *[False] * 4]
    assert found.confidence_max_abs == np.inf


def test_features_tap_by_tap() -> None:
    rng = np.random.default_rng(0)
    seen = recording(rng, np.zeros((1, 7, VOCAB)), [[]])
    same, other, beyond, more = compare_features([seen], [1, 3, 7, 2], [1, 2, 9], None)
    assert same == Feature(1, 1, 0.0)
    assert (other.file_tap, other.reference_tap) == (3, 2)
    apart = np.abs(seen.inputs[:, 2] - seen.inputs[:, 1]).max() / seen.inputs[:, 1].std()
    assert other.relative == pytest.approx(apart)
    assert beyond == Feature(7, 9, None)
    assert more == Feature(2, None, None)

    class Target:
        def run(self, tokens: list[int]) -> tuple[Any, Any]:
            assert tokens == list(range(10))
            streams = np.zeros((4, 10, HIDDEN))
            streams[1] = seen.inputs[:, 0] * 0.5
            return streams, None

    target: Any = Target()
    (found,) = compare_features([seen], [1], [1], target)
    assert found.target_relative == pytest.approx(1.0)  # twice the PyTorch target's: as far away as that is long


def judged(facts: Facts, **changes: Any) -> tuple[dict[str, tuple[str, str]], Parity]:
    """(status, detail) of each check of a right comparison with ``changes``, and the comparison."""
    right = Comparison(9, tuple(Position(i, 1e-6, 1e-6, 1.0) for i in range(7)), 1e-7)
    features = [Feature(tap, tap, 0.0) for tap in (1, 2, 3)]
    values: dict[str, Any] = {
        "facts": facts,
        "tolerance": EXACT,
        "target_tolerance": 1e-5,
        "tokens": 40,
        "features": features,
        "offered": range(4),
        "drafts": 7,
        "proven": (True, True),
        "held": right,
    }
    parity = Parity(**(values | changes))
    return {check.name: (check.status, check.detail) for check in judge_parity(parity)}, parity


def off(relative: float, confidence: float | None = 1e-7) -> Comparison:
    return Comparison(9, tuple(Position(i, relative, relative, 0.5) for i in range(7)), confidence)


def test_right_comparison_passes(facts: Facts) -> None:
    checks, parity = judged(facts)
    assert {name: status for name, (status, _) in checks.items()} == dict.fromkeys(
        ("features", "parity", "confidence"), "pass"
    )
    assert checks["parity"][1] == (
        "9 blocks are the checkpoint's to within 1e-06 of the logits' deviation (0.0001 is allowed for F32)"
    )
    assert parity.suspects == []


def test_tolerance_is_a_limit(facts: Facts) -> None:
    assert judged(facts, held=off(1e-4))[0]["parity"][0] == "pass"
    checks, parity = judged(facts, held=off(1.01e-4))
    assert checks["parity"][0] == "fail"
    assert "differ from the checkpoint's by up to 0.0001" in checks["parity"][1]
    assert parity.suspects[0] in checks["parity"][1]
    assert judged(facts, held=off(float("nan")))[0]["parity"][0] == "fail"
    assert judged(facts, held=off(float("inf")))[0]["parity"][0] == "fail"
    assert judged(facts, held=off(1e-6, 1e-5))[0]["confidence"][0] == "pass"
    assert judged(facts, held=off(1e-6, 1.1e-5))[0]["confidence"][0] == "fail"


def test_one_bad_position_is_enough(facts: Facts) -> None:
    positions = tuple(Position(i, 1e-6, 0.5 if i == 6 else 1e-6, 1.0) for i in range(7))
    checks, _ = judged(facts, held=Comparison(9, positions, 1e-7))
    assert checks["parity"][0] == "fail"
    assert "those from 6 on do not" in checks["parity"][1]


def test_nothing_compared_is_no_success(facts: Facts) -> None:
    for held in (None, Comparison(0, (), None)):
        checks, _ = judged(facts, held=held)
        assert checks["parity"][0] == "fail"
        assert "nothing was compared" in checks["parity"][1]


def test_block_of_another_length_fails_although_its_positions_agree(facts: Facts) -> None:
    checks, _ = judged(facts, drafts=6, held=Comparison(9, off(1e-6).positions[:6], 1e-7))
    assert checks["parity"][0] == "fail"
    assert "the file drafts 6 tokens a block, the checkpoint 7" in checks["parity"][1]


def test_confidence_that_is_missing(facts: Facts) -> None:
    checks, _ = judged(facts, held=off(1e-6, None))
    assert checks["confidence"] == (
        "fail",
        "the checkpoint has a confidence head, but the file gives no confidence",
    )
    checks, _ = judged(replace(facts, has_confidence_head=False), held=off(1e-6, None))
    assert checks["confidence"][0] == "pass"


def test_features_of_another_target(facts: Facts) -> None:
    features = [Feature(tap, tap, 0.0, 0.3) for tap in (1, 2, 3)]
    checks, parity = judged(facts, features=features)
    assert checks["features"][0] == "fail"
    assert "up to 0.3 of their size away from the PyTorch target's (1e-05 is allowed)" in checks["features"][1]
    assert judged(facts, features=features, target_tolerance=0.9)[0]["features"][0] == "pass"
    assert any("another target" in cause for cause in parity.suspects)


def test_json_holds_what_json_can(facts: Facts) -> None:
    _, parity = judged(facts, held=off(float("inf"), float("nan")), features=[Feature(1, None, float("inf"))])
    document = json.loads(json.dumps(parity.to_json(), allow_nan=False))
    assert document["positions"][0]["relative"] is None
    assert document["confidence_max_abs"] is None
    assert document["features"][0]["relative"] is None


def test_noisiest_type_decides() -> None:
    assert tolerance_for([]) == tolerance_for([GGMLType.F32]) == EXACT
    assert tolerance_for([GGMLType.F32, GGMLType.BF16, GGMLType.F16]) == TOLERANCES[GGMLType.BF16]
    assert tolerance_for([GGMLType.Q8_0, GGMLType.Q4_K]) == COARSEST
    limits = [TOLERANCES[kind].logits for kind in (GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0)]
    assert limits == sorted(limits)
    assert COARSEST.logits > limits[-1]
    assert target_tolerance([GGMLType.F32]) < target_tolerance([GGMLType.F32, GGMLType.Q8_0]) < 1
    assert target_tolerance([GGMLType.Q2_K]) < 1.2  # unrelated layer inputs are 1.4 apart


def test_tolerances_are_those_of_the_documented_measurements() -> None:
    """Three times what docs/validation.md has as measured, and no more than the next round figure."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "validation.md").read_text("utf-8")
    table = text.partition("<!-- measured -->")[2].partition("\n\n")[0].strip().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [row[0] for row in rows][:4] == ["F32", "F16", "BF16", "Q8_0"]
    for name, logits, confidence, stated, _ in rows:
        tolerance = tolerance_for([GGMLType[name]])
        assert stated == f"{tolerance.logits:.1g}, {tolerance.confidence:.2g}".replace("0.0001", "1e-4").replace(
            "1e-05", "1e-5"
        )
        assert 3 * float(logits) <= tolerance.logits
        assert 3 * float(confidence) <= tolerance.confidence
