"""Fit of draft and target, judged from their headers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.draft import Draft, Rope
from dspark_convert.pair.judge import judge_pair, judge_taps
from dspark_convert.plan import plan_for_directory
from dspark_convert.source.provenance import Provenance
from dspark_convert.target import Target, open_target_directory, open_target_gguf
from dspark_convert.tokenizer.result import TokenizerKVs
from tests.checkpoints import Pair

TARGET = Target(Path("Qwen3-4B"), True, "qwen3", Provenance("Qwen3-4B"), 128, 4, 512, tied=False, mrope=False)


@pytest.fixture
def draft(pair: Pair) -> Draft:
    draft = plan_for_directory(pair.draft).draft
    assert draft is not None
    return draft


def rules(draft: Draft, target: Target, trained: int = 4) -> list[tuple[str, str]]:
    return [(finding.severity, finding.rule) for finding in judge_pair(draft, target, trained)]


def test_a_fit(draft: Draft) -> None:
    assert rules(draft, TARGET) == []


def test_what_a_target_does_not_say_is_not_judged(draft: Draft) -> None:
    assert rules(draft, replace(TARGET, hidden_size=None, n_layer=None, vocab_size=None)) == []
    assert rules(draft, replace(TARGET, n_layer=9), trained=0) == []


def test_misfits_are_told_together(draft: Draft) -> None:
    target = replace(TARGET, hidden_size=64, n_layer=5, vocab_size=513)
    assert rules(draft, target) == [
        ("error", "target-hidden-size"),
        ("error", "target-vocabulary"),
        ("error", "target-layers"),
    ]


@pytest.mark.parametrize(
    "name", ["qwen3", "qwen3moe", "qwen3_moe", "qwen3_5", "gpt-oss", "gpt_oss", "nemotron_h", "deepseek_v4", "mimo2"]
)
def test_targets_whose_layers_llama_cpp_hands_out(name: str, draft: Draft) -> None:
    assert rules(draft, replace(TARGET, architecture=name)) == []


@pytest.mark.parametrize("name", ["mamba2", "unknown", "", "qwen2", "qwen"])
def test_targets_whose_layers_it_keeps(name: str, draft: Draft) -> None:
    assert rules(draft, replace(TARGET, architecture=name)) == [("warning", "target-untappable")]


def test_a_target_with_rotated_tables(draft: Draft) -> None:
    assert rules(draft, replace(TARGET, transforms=("prism.hadamard.k",))) == [("warning", "target-transformed")]
    own = replace(draft, has_token_embd=True, has_output=True)
    assert rules(own, replace(TARGET, transforms=("prism.hadamard.k",))) == []


@pytest.mark.parametrize(
    ("architecture", "layers", "taps", "good"),
    [
        ("qwen3", 4, (0, 1, 2), True),
        ("qwen3", 4, (1, 2, 3), True),
        ("qwen3", 4, (1, 2, 4), False),
        # these hand out the residual behind the last layer too
        ("nemotron_h", 4, (1, 2, 4), True),
        ("deepseek4", 4, (4,), True),
        ("mimo2", 4, (4,), True),
        ("nemotron_h", 4, (5,), False),
    ],
)
def test_taps(architecture: str, layers: int, taps: tuple[int, ...], good: bool, draft: Draft) -> None:
    target = replace(TARGET, architecture=architecture, n_layer=layers)
    findings = judge_taps(replace(draft, target_layers=taps), target, 0)
    assert [f.rule for f in findings] == ([] if good else ["taps-out-of-range"])


def test_taps_without_a_target_are_held_against_the_config(draft: Draft) -> None:
    beyond = replace(draft, target_layers=(1, 4))
    assert [f.rule for f in judge_taps(beyond, None, 3)] == ["taps-out-of-range"]
    # of some targets (MiMo's) what leaves the last layer may be tapped
    assert judge_taps(beyond, None, 4) == []
    assert judge_taps(beyond, None, 5) == []
    assert judge_taps(beyond, None, 0) == []
    # a target that does not tell its layers leaves the config's word
    silent = replace(TARGET, n_layer=None)
    assert [f.rule for f in judge_taps(beyond, silent, 4)] == ["taps-out-of-range"]


def test_a_vocabulary_that_a_config_makes_up_is_not_padded_to(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def from_directory(_path: Path, vocab_size: int, **_options: object) -> TokenizerKVs:
        sizes.append(vocab_size)
        return TokenizerKVs((), ())

    monkeypatch.setattr("dspark_convert.tokenizer.from_directory", from_directory)
    pair.config({"vocab_size": 2**24})
    plan = plan_for_directory(pair.draft, open_target_directory(pair.target))
    assert "target-vocabulary" in {finding.rule for finding in plan.errors}
    assert sizes == [512]


def test_another_base_of_rotation_is_doubted(draft: Draft) -> None:
    """A draft rotates as its target does; an edited config would pass every other check."""
    assert rules(draft, replace(TARGET, rope_theta=draft.rope.freq_base)) == []
    (finding,) = judge_pair(draft, replace(TARGET, rope_theta=1e6), 4)
    assert (finding.severity, finding.rule) == ("warning", "target-rope-base")
    assert finding.message == "the draft rotates with base 10,000, but Qwen3-4B with 1,000,000."


@pytest.mark.parametrize("change", [{"sliding_window": 64}, {"rope": Rope("neox", 16, 1e4, {"type": "yarn"})}, None])
def test_drafts_of_another_make_have_a_base_of_their_own(change: dict[str, Any] | None, draft: Draft) -> None:
    target = replace(TARGET, rope_theta=1e6, architecture="qwen3" if change else "lfm2")
    assert rules(replace(draft, **(change or {})), target) == [("info", "target-rope-base")]


def test_cut_target_gguf_is_told(draft: Draft, pair: Pair) -> None:
    assert open_target_gguf(pair.gguf).damage == ()
    data = pair.gguf.read_bytes()
    pair.gguf.write_bytes(data[: len(data) // 2])
    assert ("warning", "target-damaged") in rules(draft, open_target_gguf(pair.gguf))
