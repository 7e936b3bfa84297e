"""The confidence head against what was accepted, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dspark_convert.bench.calibration import Bin, calibrate, pairs_of
from dspark_convert.bench.lines import calibration_sentence
from dspark_convert.bench.records import Setting
from tests.bench.made import made_round, made_turn

WHOLE = Setting(4)


def test_only_proposals_that_were_reached_are_compared() -> None:
    confidences = [0.9, 0.8, 0.7, 0.6]
    turn = made_turn(
        {
            WHOLE: [
                made_round(4, confidences=confidences),
                made_round(1, confidences=confidences),
                made_round(0, confidences=confidences),
            ]
        }
    )
    # all of the first, the second up to its rejection; the third has one token left before the text's end
    assert pairs_of([turn], WHOLE) == [
        (0.9, True),
        (0.8, True),
        (0.7, True),
        (0.6, True),
        (0.9, True),
        (0.8, False),
        (0.9, False),
    ]
    # the same rounds, of which the text ends one token into the second
    ended = replace(turn, tokens=turn.tokens[:7])
    assert pairs_of([ended], WHOLE) == [(0.9, True), (0.8, True), (0.7, True), (0.6, True), (0.9, True)]


def test_table_and_scores_by_hand() -> None:
    pairs = [(0.92, True), (0.98, True), (0.9, False), (0.25, True), (0.21, False), (1.0, True)]
    found = calibrate(pairs)
    assert found is not None
    low, high = found.bins
    assert low == Bin(0.2, 0.3, 2, pytest.approx(0.23), 0.5)
    assert high == Bin(0.9, 1.0, 4, pytest.approx(0.95), 0.75)
    assert found.ece == pytest.approx((2 * 0.27 + 4 * 0.20) / 6)
    squares = 0.08**2 + 0.02**2 + 0.9**2 + 0.75**2 + 0.21**2 + 0
    assert found.brier == pytest.approx(squares / 6)
    assert found.base_brier == pytest.approx(2 / 3 * 1 / 3)
    assert (found.count, found.observed) == (6, pytest.approx(2 / 3))


def test_without_a_head_there_is_none() -> None:
    assert pairs_of([made_turn({WHOLE: [made_round(2)]})], WHOLE) == []
    assert calibrate([]) is None


def test_sentence_tells_which_way_it_errs() -> None:
    sure = calibrate([(0.9, False)] * 5 + [(0.9, True)] * 5)
    modest = calibrate([(0.5, True)] * 10)
    right = calibrate([(0.1, False)] * 10 + [(0.9, True)] * 10)
    assert sure is not None and modest is not None and right is not None
    assert "too sure by 0.40 on average" in calibration_sentence(sure)
    assert "is no better than" in calibration_sentence(sure)
    assert "too modest by 0.50 on average" in calibration_sentence(modest)
    assert "right on average" in calibration_sentence(right)
    assert "is better than" in calibration_sentence(right)
