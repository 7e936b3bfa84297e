"""What is said of a draft's meaning, and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.findings import Finding
from dspark_convert.plan import plan_for_directory
from fixtures.dflash2 import make_dflash2_pair
from fixtures.families import make
from fixtures.gemma4 import make_gemma4_pair


def told(draft: Path, rule: str) -> list[Finding]:
    return [finding for finding in plan_for_directory(draft).findings if finding.rule == rule]


def change(draft: Path, **changes: Any) -> Path:
    config = draft / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    return draft


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("final_logit_softcapping", 30.0, "capped at 30"), ("output_multiplier", 0.25, "multiplied by 0.25")],
)
def test_logits_that_llama_cpp_neither_scales_nor_caps(key: str, value: float, said: str, tmp_path: Path) -> None:
    own = {"dflash_config": {key: value}}
    (finding,) = told(change(make("deepspec_qwen36", tmp_path / "dspark"), **own), "logits-unscaled")
    assert finding.severity == "warning" and said in finding.message and "Markov" in finding.message
    (finding,) = told(change(make("speculators_dflash_full", tmp_path / "dflash"), **own), "logits-unscaled")
    assert finding.severity == "info" and said in finding.message


@pytest.mark.parametrize("key", ["final_logit_softcapping", "output_multiplier"])
def test_a_head_of_zeros_adds_nothing_to_the_logits(key: str, tmp_path: Path) -> None:
    own = {"dflash_config": {key: 0.25}}
    draft = change(make("speculators_dflash_full", tmp_path), sample_from_anchor=True, **own)
    assert told(draft, "zero-markov-head") != []
    (finding,) = told(draft, "logits-unscaled")
    assert finding.severity == "info" and finding.message.endswith("the same tokens are drafted without it.")


def test_a_multiplier_of_one_changes_nothing(tmp_path: Path) -> None:
    own = {"dflash_config": {"output_multiplier": 1.0}}
    assert told(change(make("deepspec_qwen36", tmp_path), **own), "logits-unscaled") == []


def test_gemma4_is_capped_in_training_alone(tmp_path: Path) -> None:
    (finding,) = told(make_gemma4_pair(tmp_path / "a").draft_dir, "logits-unscaled")
    assert (finding.severity, finding.where) == ("warning", "final_logit_softcapping")
    assert told(make_gemma4_pair(tmp_path / "b", final_logit_softcapping=None).draft_dir, "logits-unscaled") == []


def test_dflash2_is_scaled_and_capped_by_llama_cpp_too(tmp_path: Path) -> None:
    draft = make_dflash2_pair(tmp_path, muse=True).draft_dir
    found = plan_for_directory(draft).draft
    assert found is not None and found.logit_softcap == 20.0
    assert told(draft, "logits-unscaled") == []


@pytest.mark.parametrize(
    ("anchor", "confidence", "why"),
    [
        (True, True, "read the block from slot 0 and load the confidence head."),
        (True, False, "read the block from slot 0."),
        (False, True, "load the confidence head."),
    ],
)
def test_what_a_head_of_zeros_is_for(anchor: bool, confidence: bool, why: str, tmp_path: Path) -> None:
    name = "conf_without_markov" if confidence else "dflash_deepspec"
    draft = change(make(name, tmp_path), sample_from_anchor=anchor)
    (finding,) = told(draft, "zero-markov-head")
    assert finding.severity == "info" and finding.message.endswith(f"makes llama.cpp {why}")


def test_no_head_of_zeros_is_needed_without_the_anchor_and_confidence(tmp_path: Path) -> None:
    draft = change(make("dflash_deepspec", tmp_path), sample_from_anchor=False)
    assert told(draft, "zero-markov-head") == []
    assert not [job for job in plan_for_directory(draft).tensors if job.name.startswith("markov")]
