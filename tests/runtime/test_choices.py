"""The reference takes llama.cpp's experts where they fit it, and each choice is held against its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_convert.reference.draft import Block, Reference
from dspark_convert.runtime.choices import FREE, Choices, add_up, fit_experts
from dspark_convert.runtime.noise import EXACT
from dspark_convert.runtime.parity import Comparison, Feature, Position, compare_blocks, furthest
from dspark_convert.runtime.parity_verdict import Parity, judge_parity
from dspark_convert.runtime.recording import Recording
from fixtures.deepseek4 import make_deepseek4

CHOSEN = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference.load(make_deepseek4(tmp_path_factory.mktemp("v4") / "model"))


@pytest.fixture(scope="module")
def own(reference: Reference) -> Block:
    return reference.block(features(), 11, CHOSEN)


def features() -> Any:
    return np.random.default_rng(7).standard_normal((6, 3 * 192))


def experts(*changes: tuple[int, int, list[int]]) -> Any:
    """[3 stages, 5 slots, 3 used], all the reference's own but for ``changes``."""
    taken = np.full((3, 5, 3), FREE)
    for stage, slot, row in changes:
        taken[stage, slot] = row
    return taken


def recording(logits: Any, taken: Any) -> Recording:
    return Recording(
        tokens=np.arange(6),
        layers=np.array([2, 3, 4]),
        inputs=features().reshape(6, 3, 192),
        positions=np.array([6]),
        anchors=np.array([11]),
        slots=np.array([CHOSEN[: logits.shape[0]]]),
        logits=logits[None],
        confidences=np.zeros((1, 0), np.float32),
        experts=taken[None] if taken is not None else np.empty(0, np.int64),
        candidates=np.empty(0, np.int64),
        scores=np.empty(0, np.float32),
    )


def taken_by(reference: Reference) -> tuple[Any, Block]:
    """Experts for every token that are no token's own choice throughout, and the block with them."""
    rng = np.random.default_rng(3)
    taken = np.array([[rng.permutation(8)[:3] for _ in range(5)] for _ in range(3)])
    return taken, reference.block(features(), 11, CHOSEN, taken)


def test_own_choices_are_the_best(own: Block) -> None:
    assert own.behind is not None
    assert own.behind.shape == (3, 5)
    assert not own.behind.any()


def test_what_is_taken_is_computed_with_and_held_against_the_best(reference: Reference, own: Block) -> None:
    found = [reference.block(features(), 11, CHOSEN, experts((1, 2, row))) for row in ([0, 1, 2], [2, 0, 1], [3, 4, 5])]
    np.testing.assert_allclose(found[0].logits, found[1].logits, atol=1e-12)  # the order is of no account
    assert furthest(found[0], found[2].logits, 0) > 0.1
    for block in found:
        assert block.behind is not None
        assert np.argwhere(block.behind).tolist() in ([[1, 2]], [])
    assert sum(bool(block.behind is not None and block.behind.any()) for block in found) >= 2
    np.testing.assert_array_equal(reference.block(features(), 11, CHOSEN, experts()).logits, own.logits)


def test_logits_are_compared_with_llama_cpp_s_experts(reference: Reference, own: Block) -> None:
    taken, block = taken_by(reference)
    assert furthest(own, block.logits, 0) > 0.3
    (found,) = compare_blocks([recording(block.logits, taken)], [reference])
    assert max(position.relative for position in found.positions) == 0
    assert found.choices is not None
    assert (found.choices.made, found.choices.others) == (15, np.count_nonzero(block.behind))
    assert found.choices.others > 10
    assert found.choices.furthest == np.max(block.behind) > 1


def test_only_the_first_reference_takes_them(reference: Reference) -> None:
    taken, block = taken_by(reference)
    _, unrounded = compare_blocks([recording(block.logits, taken)], [reference, reference])
    assert unrounded.choices is None
    assert max(position.relative for position in unrounded.positions) > 0.3


def test_slots_that_llama_cpp_does_not_have_are_free_and_not_counted(reference: Reference) -> None:
    taken, block = taken_by(reference)
    short = recording(block.logits[:4], taken[:, :4])
    fitted = fit_experts(short, 0, reference.facts)
    assert fitted is not None
    assert fitted.shape == (3, 5, 3)
    assert (fitted[:, 4] == FREE).all()
    (found,) = compare_blocks([short], [reference])
    assert found.choices is not None
    assert found.choices.made == 12
    longer = fit_experts(recording(block.logits, np.repeat(taken, 2, axis=1)), 0, reference.facts)
    assert longer is not None
    assert longer.shape == (3, 5, 3)


def test_without_them_the_reference_takes_its_own(reference: Reference, own: Block) -> None:
    unseen = recording(own.logits, None)
    assert fit_experts(unseen, 0, reference.facts) is None
    (found,) = compare_blocks([unseen], [reference])
    assert found.choices is None
    assert max(position.relative for position in found.positions) == 0
    assert fit_experts(recording(own.logits, experts()), 0, replace(reference.facts, stages=None)) is None


@pytest.mark.parametrize(
    ("shape", "text"),
    [((3, 5, 2), "takes 2 experts at 3 stages, the checkpoint 3 at 3"), ((2, 5, 3), "takes 3 experts at 2 stages")],
)
def test_another_number_is_told(reference: Reference, own: Block, shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        fit_experts(recording(own.logits, np.zeros(shape, np.int64)), 0, reference.facts)


@pytest.mark.parametrize("row", [[1, 2, 1], [0, 1, 8], [-1, 0, 1]])
def test_what_is_no_expert_is_told(reference: Reference, own: Block, row: list[int]) -> None:
    taken = np.tile([0, 1, 2], (3, 5, 1))
    taken[0, 0] = row
    with pytest.raises(ValueError, match="are not different experts of 8"):
        fit_experts(recording(own.logits, taken), 0, reference.facts)


def test_all_experts_taken_leave_no_choice(tmp_path: Path) -> None:
    every = Reference.load(make_deepseek4(tmp_path, num_experts_per_tok=8))
    block = every.block(np.zeros((2, 3 * 192)), 11, CHOSEN)
    assert block.behind is not None
    assert not block.behind.any()


def test_adding_up() -> None:
    assert add_up([]) is None
    found = add_up([np.array([[0.0, 0.25], [0.0, 0.0]]), np.array([[0.5], [0.0]])])
    assert found == Choices(6, 2, 0.5)


def judged(reference: Reference, choices: Choices, relative: float = 1e-6) -> tuple[str, str]:
    held = Comparison(9, tuple(Position(i, relative, relative, 1.0) for i in range(5)), 1e-7, choices=choices)
    features = [Feature(tap, tap, 0.0) for tap in (2, 3, 4)]
    parity = Parity(reference.facts, EXACT, 1e-5, 40, features, range(5), 5, (True, True), held)
    (check,) = (check for check in judge_parity(parity) if check.name == "parity")
    return check.status, check.detail


def test_a_choice_that_is_not_near_fails_although_all_logits_agree(reference: Reference) -> None:
    status, text = judged(reference, Choices(135, 0, 0.0))
    assert status == "pass"
    assert text.endswith("; of 135 choices of experts none are another than the checkpoint's")
    status, text = judged(reference, Choices(135, 2, EXACT.margin))
    assert status == "pass"
    assert "of 135 choices of experts 2 are the other one of two as good as equal, up to 0.0001 of" in text
    status, text = judged(reference, Choices(135, 1, 1.01 * EXACT.margin))
    assert status == "fail"
    assert "of 135 choices of experts 1 is not the checkpoint's" in text
    assert judged(reference, Choices(135, 1, float("nan")))[0] == "fail"


def test_nan_is_far_away(own: Block) -> None:
    assert furthest(own, np.full_like(own.logits, np.nan), 0) > 1e6


def test_infinities_on_both_sides_agree(own: Block) -> None:
    logits = own.logits.copy()
    logits[:, 3] = -np.inf
    reduced = Block(logits, own.confidence)
    assert furthest(reduced, logits, 0) == 0
    assert furthest(reduced, own.logits, 0) > 1e6
