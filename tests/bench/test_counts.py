"""Acceptance per position, and what its curve says of a draft."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dspark_convert.bench.counts import acceptance_of, diagnose, later_share, trend
from dspark_convert.bench.records import Setting
from dspark_convert.runtime.report import Acceptance
from tests.bench.made import made_round, made_turn

WHOLE = Setting(4)


def counts(rounds: int, accepted: tuple[int, ...]) -> Acceptance:
    """Of texts without end."""
    return Acceptance((rounds,) * len(accepted), accepted, rounds, (rounds, *accepted[:-1]))


def curve(shares: list[float], rounds: int = 300) -> Acceptance:
    """As if ``rounds`` rounds had been drafted."""
    return counts(rounds, tuple(round(rounds * share) for share in shares))


def test_positions_are_counted_up_to_the_first_rejection_and_the_end() -> None:
    turn = made_turn({WHOLE: [made_round(4), made_round(1), made_round(0)]})
    # 5 + 2 + 1 tokens: the second round has 3 left, the third 1
    counted = acceptance_of([turn], WHOLE)
    assert counted.drafted == (3, 2, 2, 1)
    assert counted.accepted == (2, 1, 1, 1)
    assert counted.rounds == 3
    assert later_share(counted) == 3 / 4


@pytest.mark.parametrize(("length", "shape"), [(2, "few"), (3, "flat"), (4, "flat"), (6, "flat"), (9, "flat")])
def test_the_end_of_short_texts_is_no_fall(length: int, shape: str) -> None:
    """All is accepted; proposals behind the end of a text are not there to be rejected."""
    rounds = [made_round(4) for _ in range(0, length - 1, 5)]
    turn = replace(made_turn({WHOLE: rounds}), tokens=tuple(range(length)))
    counted = acceptance_of([turn] * 40, WHOLE)
    assert {counted.conditional_share(position) for position in range(4)} <= {1.0, None}
    assert later_share(counted) in (1.0, None)
    assert diagnose(counted, "dspark").shape == shape


def test_trend_is_the_test_of_cochran_and_armitage() -> None:
    # 100 tried, 60 accepted; of those 60 tried, 30; of those 30, 6: by hand
    share, mean = 96 / 190, (60 + 2 * 30) / 190
    top = 30 * 1 + 6 * 2 - mean * 96
    bottom = share * (1 - share) * (100 * mean**2 + 60 * (1 - mean) ** 2 + 30 * (2 - mean) ** 2)
    assert trend((100, 60, 30), (60, 30, 6)) == pytest.approx(top / math.sqrt(bottom))
    # of two groups it is the usual test of two shares
    assert trend((50, 80), (40, 30)) == pytest.approx(
        (30 / 80 - 40 / 50) / math.sqrt(70 / 130 * 60 / 130 * (1 / 50 + 1 / 80))
    )
    assert trend((10, 10, 10), (10, 10, 10)) == trend((5,), (2,)) == trend((), ()) == 0


#: accepted per position, as measured: fixtures/README.md, and a smaller pair with a block of 5
RIGHT = [0.96, 0.92, 0.90, 0.88, 0.85, 0.82, 0.80]
SMALL = [0.57, 0.31, 0.17, 0.14, 0.08]


@pytest.mark.parametrize("shares", [RIGHT, SMALL], ids=["trained", "small"])
def test_a_healthy_curve_is_not_called_broken(shares: list[float]) -> None:
    assert diagnose(curve(shares), "dspark").shape in ("flat", "low")


@pytest.mark.parametrize(
    ("tried", "accepted"),
    [
        (338, (157, 83, 40, 12, 5, 0, 0)),
        (283, (175, 85, 57, 24, 7, 2, 0)),
        (294, (170, 83, 50, 21, 11, 3, 1)),
        (400, (156, 44, 8, 8, 4)),
        (100, (80, 8, 1, 0, 0)),
    ],
    ids=["q and k permuted", "no Markov head", "RoPE base", "q and k of the small pair", "cliff"],
)
def test_a_broken_curve_names_the_suspects(tried: int, accepted: tuple[int, ...]) -> None:
    diagnosis = diagnose(counts(tried, accepted), "dspark")
    assert diagnosis.shape == "falls"
    assert all(word in diagnosis.text for word in ("RoPE", "taps", "Markov"))


def test_a_low_curve_that_does_not_fall_is_a_doubt() -> None:
    diagnosis = diagnose(counts(536, (141, 55, 19, 5, 4)), "dspark")
    assert diagnosis.shape == "low"
    assert "or it is broken" in diagnosis.text
    unknown = diagnose(counts(449, (112, 67, 49, 36, 22)), "dspark")
    assert unknown.shape == "low"
    assert "knows these texts badly" in unknown.text


def test_a_draft_without_a_markov_head_falls_by_nature() -> None:
    diagnosis = diagnose(curve([0.6, 0.25, 0.08, 0.02]), "dflash")
    assert diagnosis.shape == "falls"
    assert "as it does without a Markov head" in diagnosis.text


def test_nothing_accepted_and_nothing_to_judge() -> None:
    assert diagnose(curve([0.02, 0.0]), "dspark").shape == "nothing"
    assert diagnose(curve([0.9, 0.1], rounds=20), "dspark").shape == "few"
    assert diagnose(curve([0.2, 0.0], rounds=100), "dspark").shape == "few"
    assert diagnose(curve([0.3, 0.2, 0.13]), "dspark").shape == "low"
