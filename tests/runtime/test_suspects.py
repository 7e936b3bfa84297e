"""What deviates where -> the cause named; the figures are those that wrong files were measured with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dspark_convert.runtime.suspects import Evidence, describe_taps, find_suspects

RIGHT = Evidence(
    relative=[1.8e-6, 1.6e-6, 1.9e-6, 1.6e-6, 1.7e-6, 1.7e-6, 1.6e-6],
    confidence=4e-7,
    confidence_tolerance=1e-5,
    file_taps=[1, 2, 3],
    taps=[1, 2, 3],
)


def test_nothing_deviates() -> None:
    assert find_suspects(RIGHT) == []
    assert (
        find_suspects(Evidence(relative=[0.07, 0.08], tolerance=0.3, confidence=0.01, confidence_tolerance=0.05)) == []
    )


@pytest.mark.parametrize(
    ("relative", "words"),
    [
        # q and k permuted for the other rotation
        ([2.2, 2.2, 2.5, 2.6, 2.4, 2.9, 3.0], "other RoPE layout"),
        ([4.6, 5.7, 5.5, 5.7, 6.4, 5.6, 5.1], "other RoPE layout"),
        # another mask token, in a random and in the trained pair
        ([2.1, 4.1, 4.0, 4.0, 3.9, 4.2, 4.1], "the mask token"),
        ([1.6, 3.0, 3.2, 4.0, 4.9, 3.5, 3.6], "the mask token"),
        # a causal block
        ([1.7, 1.3, 0.76, 0.55, 0.45, 0.32, 0.17], "causal flag"),
        ([1.7, 0.63, 0.54, 0.45, 0.21, 0.32, 0.098], "causal flag"),
        # RMS epsilon 1e-4 for 1e-6
        ([3.2e-4, 3.4e-4, 2.7e-4, 3.0e-4, 3.5e-4, 3.2e-4, 3.5e-4], "RMS epsilon"),
        # an f16 cache
        ([1.6e-3, 1.5e-3, 1.6e-3, 1.4e-3, 1.6e-3, 1.6e-3, 1.6e-3], "key/value cache"),
        # a norm scaled by 1.01
        ([0.03, 0.034, 0.033, 0.033, 0.031, 0.03, 0.03], "tensor of small effect"),
        # the chain alone
        ([1.8e-6, 2.8, 2.9, 2.8, 2.8, 2.9, 2.8], "position 0 agrees and those from 1 on do not: the Markov chain"),
        ([1.8e-6, 1.7e-6, 2.9, 2.8, 2.8, 2.9, 2.8], "those from 2 on do not"),
        ([3.7, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6], "only position 0 differs"),
        ([3.7], "other RoPE layout"),
    ],
)
def test_pattern_over_the_positions(relative: list[float], words: str) -> None:
    (cause,) = find_suspects(replace(RIGHT, relative=relative))
    assert words in cause
    assert "the library computes something else" in cause


@pytest.mark.parametrize(
    ("relative", "words"),
    [
        ([1.8e-6, 2.8, 2.9], "those from 1 on do not: what slots see of each other (the causal flag, the window)"),
        ([3.7, 1e-6, 1e-6], "only position 0 differs: how the first mask's slot is read;"),
        ([1.7, 0.63, 0.3], "the first mask's slot is wrong"),
        ([2.1, 4.1, 4.0], "the taps, the mask token, or the embedding or head"),
    ],
)
def test_draft_without_a_markov_head_that_is_read_from_the_first_mask(relative: list[float], words: str) -> None:
    (cause,) = find_suspects(replace(RIGHT, relative=relative, from_anchor=False, markov=False))
    assert words in cause


def test_block_of_another_length() -> None:
    (cause,) = find_suspects(replace(RIGHT, relative=[0.27, 0.23, 0.23, 0.2, 0.21, 0.25], drafts=6))
    assert cause.startswith("the file drafts 6 tokens a block and the checkpoint 7: the block size, or the anchor rule")


def test_confidence_alone() -> None:
    (cause,) = find_suspects(replace(RIGHT, confidence=0.04))
    assert cause.startswith("all logits agree and only the confidence differs: its bias, its weight")
    # where the logits differ too the confidence says nothing of its own
    causes = find_suspects(replace(RIGHT, relative=[2.0] * 7, confidence=0.4))
    assert not any("only the confidence" in cause for cause in causes)


def test_what_the_files_show_goes_before_guesses() -> None:
    off = replace(RIGHT, relative=[2.2] * 7, confidence=0.4)
    assert find_suspects(replace(off, values=False)) == [
        "tensors differ from the checkpoint's; the check values names them"
    ]
    assert find_suspects(replace(off, stated=False, values=False)) == [
        "tensors differ from the checkpoint's; the check values names them",
        "metadata differs from the checkpoint's; the check metadata names the keys",
    ]
    first, *_ = find_suspects(replace(off, file_taps=[0, 1, 2], stated=False))
    assert "one too low" in first


def test_another_target() -> None:
    (cause,) = find_suspects(replace(RIGHT, target_relative=0.5, target_tolerance=0.08))
    assert "not the PyTorch target's: another target" in cause
    assert find_suspects(replace(RIGHT, target_relative=0.02, target_tolerance=0.08)) == []


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ([0, 1, 2], "target_layers is one too low"),
        ([2, 3, 4], "target_layers is one too high"),
        ([2, 1, 3], "the same layers in another order"),
        ([1, 2, 2], "they differ at tap 2"),
        ([1, 2], "not even their number"),
    ],
)
def test_taps(ours: list[int], words: str) -> None:
    text = describe_taps(ours, [1, 2, 3])
    assert text.startswith(f"the file taps the inputs of layers {ours}, the checkpoint those of [1, 2, 3]: ")
    assert words in text
