"""Choices of experts are followed where they are near, explain what is off, and nowhere else."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dspark_convert.reference.draft import Block, Reference
from dspark_convert.reference.states import Swap
from dspark_convert.runtime.choices import Followed, follow_choices, furthest
from dspark_convert.runtime.noise import Tolerance
from fixtures.deepseek4 import make_deepseek4

CHOSEN = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference.load(make_deepseek4(tmp_path_factory.mktemp("v4") / "model"))


@pytest.fixture(scope="module")
def compute(reference: Reference) -> partial[Block]:
    features = np.random.default_rng(7).standard_normal((6, 3 * 192))
    return partial(reference.block, features, 11, CHOSEN)


@pytest.fixture(scope="module")
def nearest(compute: partial[Block]) -> list[tuple[float, Swap]]:
    """The choices of the block, the nearest first."""
    margins = compute(()).margins
    assert margins is not None
    assert margins.shape == (3, 5)
    return sorted((float(margin), (int(stage), int(slot))) for (stage, slot), margin in np.ndenumerate(margins))


def followed(compute: partial[Block], swaps: Collection[Swap], margin: float, noise: float = 0.0) -> Followed:
    """Of a llama.cpp that took ``swaps`` and rounds by ``noise``."""
    got = compute(swaps).logits
    got = got + noise * np.random.default_rng(1).uniform(-1, 1, got.shape)
    return follow_choices(compute, got, 0, Tolerance("some", 0.3, 1.0, margin))


def test_a_block_that_agrees_is_left_alone(compute: partial[Block]) -> None:
    found = followed(compute, (), margin=9.0)
    assert (found.swaps, found.margin) == (0, 0.0)


def test_one_near_choice(compute: partial[Block], nearest: list[tuple[float, Swap]]) -> None:
    margin, swap = nearest[0]
    assert furthest(compute(()), compute((swap,)).logits, 0) > 0.3
    found = followed(compute, (swap,), margin=1.01 * margin, noise=0.01)
    assert (found.swaps, found.margin) == (1, margin)
    np.testing.assert_array_equal(found.block.logits, compute((swap,)).logits)


def test_a_choice_that_is_not_near_is_not_followed(compute: partial[Block], nearest: list[tuple[float, Swap]]) -> None:
    (below, _), (margin, swap) = nearest[3:5]
    found = followed(compute, (swap,), margin=(below + margin) / 2)
    assert found.swaps == 0
    np.testing.assert_array_equal(found.block.logits, compute(()).logits)


def test_two_choices(compute: partial[Block], nearest: list[tuple[float, Swap]]) -> None:
    first, second = (swap for _, swap in nearest[:2])
    found = followed(compute, (first, second), margin=1.0)
    assert found.swaps == 2
    assert furthest(found.block, compute((first, second)).logits, 0) < 1e-9


def test_what_no_choice_explains_is_the_reference_s_own(compute: partial[Block]) -> None:
    found = followed(compute, (), margin=9.0, noise=3.0)
    assert found.swaps == 0
    np.testing.assert_array_equal(found.block.logits, compute(()).logits)


def test_nan_is_far_away(compute: partial[Block]) -> None:
    got = np.full_like(compute(()).logits, np.nan)
    assert furthest(compute(()), got, 0) > 1e6


def test_all_experts_taken_leave_no_choice(tmp_path: Path) -> None:
    every = Reference.load(make_deepseek4(tmp_path, num_experts_per_tok=8))
    block = every.block(np.zeros((2, 3 * 192)), 11, CHOSEN)
    assert block.margins is not None
    assert np.isinf(block.margins).all()


def test_infinities_on_both_sides_agree(compute: partial[Block]) -> None:
    block = compute(())
    logits = block.logits.copy()
    logits[:, 3] = -np.inf
    reduced = Block(logits, block.confidence)
    assert furthest(reduced, logits, 0) == 0
    assert furthest(reduced, block.logits, 0) > 1e6
