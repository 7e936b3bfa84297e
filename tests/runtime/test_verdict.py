"""The judgements, on runs made up by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dspark_convert.runtime.report import Acceptance
from dspark_convert.runtime.verdict import count_acceptance, judge_acceptance, judge_drafting, judge_lossless


def round_of(drafts: list[int], wanted: list[int]) -> dict[str, Any]:
    accepted = next((i for i, (a, b) in enumerate(zip(drafts, wanted, strict=False)) if a != b), len(drafts))
    return {"drafts": drafts, "wanted": wanted, "accepted": accepted}


def run_of(rounds: list[dict[str, Any]], length: int, **more: Any) -> dict[str, Any]:
    tokens = list(range(length))
    return {"plain": tokens, "drafted": tokens, "gaps": [1.0] * length, "noise": 1e-6, "rounds": rounds, **more}


def test_counts_per_position() -> None:
    rounds = [
        round_of([1, 2, 3], [1, 2, 3, 4]),  # all three
        round_of([5, 9, 7], [5, 6, 7, 8]),  # one: position 2 matches again, behind a rejected one
        round_of([9, 9, 9], [1, 2, 3, 4]),  # none
    ]
    counted = count_acceptance([run_of(rounds, 100)], 3)
    assert counted.drafted == (3, 3, 3)
    assert counted.accepted == (2, 1, 1)
    assert counted.mean_accepted_length == pytest.approx(1 + 4 / 3)
    assert [counted.share(i) for i in range(3)] == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert [counted.conditional_share(i) for i in range(3)] == pytest.approx([2 / 3, 1 / 2, 1])


def test_what_lies_behind_the_end_is_not_counted() -> None:
    """Three tokens in all: the first is the prompt's, so two positions are left."""
    counted = count_acceptance([run_of([round_of([1, 2, 3], [1, 2, 3, 4])], 3)], 3)
    assert counted.drafted == counted.accepted == (1, 1, 0)
    assert counted.share(2) == 0
    assert counted.reached == (1, 1, 0)
    assert counted.conditional_share(2) is None
    assert Acceptance((1, 1), (0, 0), 1, (1, 0)).conditional_share(1) is None


def test_nothing_proposed_fails() -> None:
    nothing = count_acceptance([run_of([], 1)], 2)
    assert judge_drafting(nothing).status == "fail"
    assert judge_acceptance(nothing, [run_of([], 1)]).status == "skip"
    assert nothing.mean_accepted_length == 0


def judged(pairs: list[tuple[int, int]]) -> str:
    run = run_of([round_of([draft], [wanted, 0]) for draft, wanted in pairs], 1000)
    return judge_acceptance(count_acceptance([run], 1), [run]).status


@pytest.mark.parametrize(
    ("pairs", "status"),
    [
        pytest.param([(i, i) for i in range(30)], "pass", id="all right"),
        pytest.param([(7, 7)] * 30, "pass", id="all right, one token only"),
        pytest.param([(i, i if i % 2 else i + 50) for i in range(40)], "pass", id="half right"),
        pytest.param([(i, i + 1) for i in range(0, 60, 2)], "fail", id="none right"),
        # right in 6 of 30, but no more often than the word is common
        pytest.param([(1, 1 if i % 5 == 0 else i + 10) for i in range(30)], "fail", id="always the commonest word"),
        pytest.param([(i, i if i < 2 else i + 500) for i in range(100)], "fail", id="above chance, below the floor"),
        pytest.param([(i % 4, (i // 4) % 4) for i in range(64)], "fail", id="shuffled"),
        pytest.param(
            [(i % 3, i % 3 if i % 4 else (i + 1) % 3) for i in range(60)], "pass", id="often right on common words"
        ),
    ],
)
def test_acceptance_against_chance(pairs: list[tuple[int, int]], status: str) -> None:
    assert judged(pairs) == status


def test_equal_texts_are_lossless() -> None:
    check = judge_lossless([run_of([], 5), run_of([], 9)])
    assert (check.status, check.detail) == ("pass", "2 of 2 texts equal plain decoding")


def test_parting_on_a_clear_choice_fails() -> None:
    drafted = [0, 1, 2, 99, 4]
    check = judge_lossless([run_of([], 5, drafted=drafted, gaps=[1, 1, 1, 0.5, 1], noise=0.02)])
    assert check.status == "fail"
    assert "prompt 1 parts from plain decoding at token 3" in check.detail
    assert "0.5 apart" in check.detail


def test_parting_on_a_near_tie_passes_and_is_told() -> None:
    drafted = [0, 1, 2, 99, 77]
    runs = [run_of([], 5), run_of([], 5, drafted=drafted, gaps=[1, 1, 1, 0.009, 1], noise=0.026)]
    check = judge_lossless(runs)
    assert check.status == "pass"
    assert check.detail.startswith("1 of 2 texts equal plain decoding; prompt 2 parts at token 3 on a near-tie")
    assert "noise of 0.026" in check.detail


def test_parting_where_the_gap_is_exactly_the_noise_fails() -> None:
    assert judge_lossless([run_of([], 2, drafted=[0, 5], gaps=[1, 0.01], noise=0.01)]).status == "fail"


def test_shorter_text_is_a_difference() -> None:
    assert judge_lossless([run_of([], 5, drafted=[0, 1, 2])]).status == "fail"
