"""DFlash2's block and lattice against loops over plain floats, what their parts do, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from dspark_convert.reference.config import Config
from dspark_convert.reference.dflash2 import Lattice, convolve
from dspark_convert.reference.draft import Block, Reference
from dspark_convert.reference.facts import read_facts
from dspark_convert.reference.views import View
from fixtures.dflash2 import make_dflash2_pair
from tests.reference import dflash2_loops as loops
from tests.reference.gemma4_loops import times

pytestmark = pytest.mark.usefixtures("one_thread")

#: so small that loops are quick
SMALL: dict[str, Any] = {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 4,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
DFLASH: dict[str, Any] = {"block_size": 4, "selector_rank": 4, "selector_top_k": 5, "target_layer_ids": [0, 2]}
ANCHOR = 11


def draft(root: Path, *, dflash: dict[str, Any] | None = None, **changes: Any) -> Path:
    options = {**SMALL, **changes}
    return make_dflash2_pair(root, dtype="F32", dflash={**DFLASH, **(dflash or {})}, **options).draft_dir


def tables(directory: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    target = load_file(directory.parent / "target" / "model.safetensors")
    return target["model.embed_tokens.weight"], target["lm_head.weight"]


def features(n_past: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).normal(size=(n_past, 2 * 128))


def load(directory: Path, **options: Any) -> Reference:
    embed, head = tables(directory)
    return Reference.load(directory, embed=embed, head=head, **options)


def block(directory: Path, n_past: int = 3, candidates: Any = None, **options: Any) -> Block:
    reference = load(directory, **options)
    return reference.block(features(n_past), ANCHOR, [0] * reference.facts.slots, candidates=candidates)


def lattice_of(found: Block) -> Lattice:
    assert found.lattice is not None
    return found.lattice


@pytest.mark.parametrize(
    ("dflash", "n_past"),
    [
        ({}, 3),
        ({}, 0),
        ({"conv_kernel_size": 3, "conv_group_size": 32}, 3),
        ({"conv_kernel_size": 6}, 1),
        ({"output_multiplier": 0.2, "final_logit_softcapping": 20.0}, 3),
        ({"input_embedding_scale": 2.5}, 3),
    ],
    ids=["published", "nothing-before", "three-taps", "more-taps-than-slots", "muse", "embeddings"],
)
def test_agrees_with_loops(tmp_path: Path, dflash: dict[str, Any], n_past: int) -> None:
    directory = draft(tmp_path, dflash=dflash)
    w, config = load_file(directory / "model.safetensors"), Config(directory).values
    embed, head = tables(directory)
    states = loops.block_states(w, config, embed, features(n_past).tolist(), ANCHOR)
    logits = [loops.logits_of(state, head, config["dflash_config"]) for state in states]
    found = block(directory, n_past)
    assert np.abs(found.logits - logits).max() < 1e-10
    assert found.confidence is None
    assert lattice_of(found).walk() == loops.walk(w, states, logits, ANCHOR, 5)
    for slot, row in enumerate(lattice_of(found).scores[1:], 1):
        gate = times(w["candidate_selector.hidden_projection.weight"], states[slot])
        before = lattice_of(found).candidates[slot - 1].tolist() if slot > 1 else [ANCHOR] * 5
        ids = lattice_of(found).candidates[slot].tolist()
        expected = [[logits[slot][i] + loops.edge(w, b, i, gate) for i in ids] for b in before]
        assert np.abs(row - expected).max() < 1e-10


def test_the_selector_drafts_other_tokens_than_the_logits_alone(tmp_path: Path) -> None:
    found = block(draft(tmp_path))
    assert lattice_of(found).walk() != found.logits[1:].argmax(-1).tolist()
    silent = {"candidate_selector.successor_codebook": np.zeros((512, 4), np.float32)}
    found = block(draft(tmp_path), weights=silent)
    assert lattice_of(found).walk() == found.logits[1:].argmax(-1).tolist()


def test_convolutions_that_pass_everything_on_leave_a_dflash_draft(tmp_path: Path) -> None:
    directory = draft(tmp_path, layer_types=["full_attention"] * 2, use_sliding_window=False)
    w = load_file(directory / "model.safetensors")
    passing = {name: np.zeros_like(x) for name, x in w.items() if "_conv." in name}
    for name, table in passing.items():
        if name.endswith("base_kernel"):
            table[:, 0] = 1
    found = block(directory, weights=passing)
    save_file(
        {name: x for name, x in w.items() if "_conv." not in name and "selector" not in name},
        directory / "model.safetensors",
    )
    text = (directory / "config.json").read_text(encoding="utf-8")
    (directory / "config.json").write_text(text.replace("DFlash2DraftModel", "DFlashDraftModel"), encoding="utf-8")
    plain = block(directory)
    assert plain.lattice is None
    assert np.abs(found.logits - plain.logits).max() < 1e-12


def test_a_tap_reads_nothing_beyond_the_block() -> None:
    x = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    taps = torch.tensor([[1.0, 1.0], [100.0, 0.0], [10000.0, 0.0]]).expand(3, 3, 2)
    assert convolve(x, taps).tolist() == [[1, 10], [102, 20], [10203, 30]]
    assert convolve(x[:1], taps[:1]).tolist() == [[1, 10]]


def test_a_slot_does_not_depend_on_what_its_window_leaves_out(tmp_path: Path) -> None:
    """4 positions: slot 0 at position 3 sees all three before it, slot 1 no longer the first.

    Three convolutions hand on what attention saw to the next slot each: slot 3 hears of it, slot 4 does not.
    """
    directory = draft(tmp_path, num_hidden_layers=1, layer_types=["sliding_attention"], dflash={"block_size": 6})
    reference = load(directory)
    changed = features()
    changed[0] += 1
    first, other = (reference.block(x, ANCHOR, [0] * 6).logits for x in (features(), changed))
    moved = np.abs(first - other).max(1)
    assert moved[:4].min() > 0.001
    assert moved[4:].max() == 0


def test_candidates_that_are_told_are_taken(tmp_path: Path) -> None:
    directory = draft(tmp_path)
    own = lattice_of(block(directory))
    assert (own.candidates[0] == -1).all() and np.isnan(own.scores[0]).all() and (own.behind == 0).all()
    turned = own.candidates[:, ::-1].copy()
    turned[0] = -1
    told = lattice_of(block(directory, candidates=turned))
    assert (told.candidates == turned).all() and (told.behind == 0).all()
    assert np.allclose(told.scores[2:], own.scores[2:, ::-1, ::-1])
    assert told.walk() == own.walk()
    worst = block(directory).logits[2].argmin()
    turned[2, 0] = worst
    told = lattice_of(block(directory, candidates=turned))
    assert told.behind[2] > 3 and (told.behind[[0, 1, 3]] == 0).all()


@pytest.mark.parametrize(
    ("candidates", "words"),
    [(np.zeros((4, 6), int), r"candidates have to be \[4, 5\], found \[4, 6\]"), (np.full((4, 5), 512), "below 512")],
)
def test_refuses_candidates_that_are_none(tmp_path: Path, candidates: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        block(draft(tmp_path), candidates=candidates)


def test_facts_of_the_published_draft(tmp_path: Path) -> None:
    facts = read_facts(make_dflash2_pair(tmp_path, muse=True).draft_dir)
    assert (facts.block_size, facts.sample_from_anchor, facts.taps) == (16, False, (1, 2, 3))
    assert (facts.logit_scale, facts.logit_cap, facts.embedding_scale) == (26**-0.5, 20.0, 1.0)
    own = facts.dflash2
    assert own is not None
    assert (own.kernel, own.group, own.rank, own.top_k) == (2, 16, 16, 8)
    assert facts.views == (View(24),) * 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dflash": {"selector_top_k": 513}}, "selector_top_k has to be at most the vocab_size 512, found 513"),
        ({"dflash": {"output_multiplier": -1.0}}, "output_multiplier has to be a positive number"),
        ({"hidden_act": "gelu"}, "hidden_act has to be silu"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "layer_types has to be full_attention or sliding_"),
        ({"layer_types": ["full_attention"]}, "for each of 2 layers"),
        ({"sliding_window": None}, "sliding_window has to be a whole number"),
    ],
)
def test_refuses_what_it_cannot_compute(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load(draft(tmp_path, **changes))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("selector_rank", 8, "selector_rank is 8, but candidate_selector.predecessor_codebook has 4 columns"),
        ("conv_group_size", 48, "hidden_size 128 is no multiple of conv_group_size 48"),
        ("conv_kernel_size", 0, "conv_kernel_size has to be a whole number of at least 1, found 0"),
        ("conv_kernel_size", 3, r"layers.0.attention_conv.base_kernel has to be \[2, 3, 128\], found \[2, 2, 128\]"),
        ("conv_group_size", 8, r"attention_conv.kernel_projection.weight has to be \[64, 128\], found \[32, 128\]"),
    ],
)
def test_refuses_tensors_that_contradict_the_config(tmp_path: Path, key: str, value: int, words: str) -> None:
    directory = draft(tmp_path)
    text = (directory / "config.json").read_text(encoding="utf-8")
    stated = f'"{key}": {Config(directory).values["dflash_config"][key]}'
    assert stated in text
    (directory / "config.json").write_text(text.replace(stated, f'"{key}": {value}'), encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        load(directory)
