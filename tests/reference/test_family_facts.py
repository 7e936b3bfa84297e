"""What the families' configs and files say, in all spellings, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_convert.reference.facts import read_facts
from dspark_convert.reference.rotation import Rotation, Yarn
from dspark_convert.reference.views import View
from fixtures.families import make
from tests.reference.family_drafts import SIZES, load, rewrite


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no pickle", "cannot be read as a file of torch.save's"),
        ({"mask_token_id": 3, "embedding": torch.zeros(128)}, "is for token 3, but mask_token_id is 507"),
        ({"embedding": torch.zeros(127)}, "has to hold a row of 128 numbers"),
        ({"other": torch.zeros(128)}, "has to hold a row of 128 numbers"),
        (torch.zeros(128, dtype=torch.int64), "has to hold a row of 128 numbers"),
        ([torch.zeros(128)], "has to hold a row of 128 numbers"),
    ],
)
def test_files_that_hold_no_row(tmp_path: Path, content: Any, words: str) -> None:
    directory = make("mimo", tmp_path, **SIZES)
    path = directory / "mask_embedding.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=words):
        load(directory)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fc.weight_scale": torch.zeros(128, 23).to(torch.float8_e4m3fn)}, r"fc.weight_scale has to be F8_E4M3 of"),
        ({"fc.weight_scale": torch.zeros(128, 24)}, r"fc.weight_scale has to be F8_E4M3 of shape \[128, 24\]"),
        ({"fc.weight_scale_2": torch.zeros(2)}, "fc.weight_scale_2 has to be one number of type F32"),
        ({"fc.weight_scale_2": None}, "cannot compute with fc.weight of type U8"),
        ({"fc.weight": torch.zeros(128, 191, dtype=torch.uint8)}, "fc.weight_scale has to be"),
    ],
)
def test_packed_weights_that_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    directory = make("nemotron", tmp_path, **SIZES)
    tensors = load_file(directory / "model.safetensors") | change
    save_file({k: v for k, v in tensors.items() if v is not None}, directory / "model.safetensors")
    with pytest.raises(ValueError, match=words):
        load(directory)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("markov_gated", "vanilla Markov head only, not 'gated'"),
        ("markov_rnn", "vanilla Markov head only, not 'rnn'"),
        ("specforge_gated", "vanilla Markov head only, not 'gated'"),
        ("bonsai", "cannot compute log-SNR conditioning"),
        ("laguna", "not the draft class DFlashLagunaForCausalLM"),
        ("ornith", "not the draft class Qwen35DSparkModel"),
    ],
)
def test_families_that_are_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load(make(name, tmp_path))


@pytest.mark.parametrize(
    ("name", "tokens", "from_anchor"),
    [
        ("speculators_dspark_bonus", 8, True),
        ("speculators_dspark_bonus", 7, False),
        # neither of the two: its heads tell
        ("speculators_dspark_bonus", 3, True),
        ("speculators_dspark_bonus", None, True),
        ("speculators_dspark_anchor", 7, False),
        # declares as many tokens as the block has, and proposes one fewer
        ("speculators_dflash", 8, False),
    ],
)
def test_anchor_of_speculators_without_its_flag(
    tmp_path: Path, name: str, tokens: int | None, from_anchor: bool
) -> None:
    directory = make(name, tmp_path, **SIZES)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    methods = config["speculators_config"] | {"proposal_methods": [{"speculative_tokens": tokens}]}
    rewrite(directory, sample_from_anchor=None, speculators_config=methods)
    assert read_facts(directory).sample_from_anchor is from_anchor


def test_facts_of_speculators(tmp_path: Path) -> None:
    facts = read_facts(make("speculators_dspark_bonus", tmp_path))
    assert (facts.taps, facts.vocab_size, facts.draft_vocab_size) == ((1, 2, 3), 512, 320)
    assert facts.views == (View(12, True),) * 3 and facts.window_from_block and facts.causal
    assert facts.rotation == Rotation(10000.0, 32)


def test_a_vocabulary_s_size_may_be_left_to_its_table(tmp_path: Path) -> None:
    directory = make("speculators_dspark_bonus", tmp_path)
    rewrite(directory, draft_vocab_size=None)
    assert read_facts(directory).draft_vocab_size == 320
    rewrite(directory, draft_vocab_size=300)
    with pytest.raises(ValueError, match=r"draft_vocab_size is 300, but d2t is \[320\]"):
        read_facts(directory)


def test_windows_both_ways_of_speculators(tmp_path: Path) -> None:
    directory = make("speculators_dflash", tmp_path)
    rewrite(directory, sliding_window_non_causal=True)
    assert read_facts(directory).views == (View(12), View(), View(12))


@pytest.mark.parametrize(
    ("changes", "causal"),
    [
        ({}, (True, True, False)),
        ({"is_causal": False}, (False, False, False)),
        ({"dflash_config": {"causal": True, "mask_token_id": 507, "target_layer_ids": [0, 1, 2]}}, (True, True, True)),
        ({"dflash_query_causal": True}, (True, True, True)),
    ],
)
def test_flags_of_causality(tmp_path: Path, changes: dict[str, Any], causal: tuple[bool, ...]) -> None:
    directory = make("zlab_dflash_windows", tmp_path)
    rewrite(directory, **changes)
    facts = read_facts(directory)
    assert tuple(view.causal for view in facts.views) == causal and facts.causal is all(causal)
    assert [view.window for view in facts.views] == [12, 12, None]


@pytest.mark.parametrize(
    ("changes", "rotation"),
    [
        ({}, Rotation(10000.0, 32)),
        ({"rope_is_neox_style": False}, Rotation(10000.0, 32, neighbours=True)),
        ({"is_neox_style": False}, Rotation(10000.0, 32, neighbours=True)),
        ({"rope_interleaved": True}, Rotation(10000.0, 32, neighbours=True)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, Rotation(10000.0, 32, divisor=4.0)),
        # inherited, and not obeyed by Qwen3's rotary embedding
        ({"partial_rotary_factor": 0.25}, Rotation(10000.0, 32)),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 2.0, "truncate": False}},
            Rotation(10000.0, 32, yarn=Yarn(4.0, 1024, 2.0, truncate=False)),
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 1, "original_max_position_embeddings": 9, "beta_fast": 8}},
            Rotation(10000.0, 32, yarn=Yarn(1.0, 9, 1.0, beta_fast=8.0)),
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2.718281828459045, "mscale": 5.0, "mscale_all_dim": 2.0}},
            Rotation(10000.0, 32, yarn=Yarn(2.718281828459045, 1024, 1.25)),
        ),
    ],
)
def test_spellings_of_the_rotation(tmp_path: Path, changes: dict[str, Any], rotation: Rotation) -> None:
    directory = make("specforge", tmp_path)
    rewrite(directory, **changes)
    assert read_facts(directory).rotation == rotation
