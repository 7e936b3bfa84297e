"""Drafts of all families against loops, by meanings stated here by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dspark_convert.reference.draft import Block, Reference
from fixtures.families import make
from tests.reference.family_drafts import EMBED, HEAD, SIZES, load, rewrite
from tests.reference.family_loops import Draft, Meaning, read

EXACT = 1e-9
N_PAST, ANCHOR = 15, 77

FULL, WINDOWS, MIXED = (None, None), (9, 9), (9, None)
BOTH_WAYS, CAUSAL = (False, False), (True, True)

MEANINGS = {
    "zlab_dflash": Meaning(1, FULL, BOTH_WAYS),
    "zlab_dflash_flat": Meaning(1, FULL, BOTH_WAYS),
    "zlab_dflash_windows": Meaning(1, MIXED, (True, False)),
    "zlab_gpt_oss": Meaning(1, FULL, BOTH_WAYS),
    "hunyuan_ocr": Meaning(1, FULL, BOTH_WAYS),
    "fork_label": Meaning(0, FULL, BOTH_WAYS),
    "specforge": Meaning(0, FULL, BOTH_WAYS),
    "specforge_yarn": Meaning(0, FULL, BOTH_WAYS, yarn=(16.0, 64), eps=1e-5),
    "specforge_early": Meaning(0, FULL, BOTH_WAYS),
    "kolibri": Meaning(0, WINDOWS, BOTH_WAYS),
    "deepspec_qwen36": Meaning(0, FULL, BOTH_WAYS),
    "dflash_deepspec": Meaning(0, FULL, BOTH_WAYS),
    "conf_without_markov": Meaning(0, FULL, BOTH_WAYS),
    "ling": Meaning(0, FULL, BOTH_WAYS),
    "lfm2": Meaning(0, FULL, BOTH_WAYS, neighbours=True, eps=1e-5),
    "muse": Meaning(1, WINDOWS, BOTH_WAYS, eps=1e-5),
    "mimo": Meaning(1, WINDOWS, BOTH_WAYS, dims=16, value_scale=0.612, eps=1e-5),
    "nemotron": Meaning(1, WINDOWS, CAUSAL),
    "nemotron_inner": Meaning(1, WINDOWS, CAUSAL),
    "speculators_dspark_bonus": Meaning(1, WINDOWS, CAUSAL, from_anchor=True),
    "speculators_dspark_anchor": Meaning(0, WINDOWS, CAUSAL, from_anchor=True),
    "speculators_dflash": Meaning(1, MIXED, (True, False), from_anchor=True),
    "speculators_dflash_full": Meaning(1, FULL, BOTH_WAYS),
    "speculators_dflash_leftovers": Meaning(1, MIXED, (True, False), from_anchor=True),
}


def features_of(reference: Reference) -> np.ndarray[Any, Any]:
    return np.random.default_rng(9).normal(size=(N_PAST, len(reference.facts.taps) * 128))


def chosen_of(reference: Reference) -> list[int]:
    return [(31 * i + 8) % 512 for i in range(reference.facts.slots)]


def block(reference: Reference) -> Block:
    return reference.block(features_of(reference), ANCHOR, chosen_of(reference))


def in_loops(meaning: Meaning, directory: Path, reference: Reference, mask_row: Any = None) -> tuple[Any, list[float]]:
    draft = Draft(meaning, read(directory, EMBED, HEAD))
    states = draft.states(features_of(reference), ANCHOR, reference.facts.slots, mask_row)
    return draft.heads(states, ANCHOR, chosen_of(reference))


@pytest.mark.parametrize("name", sorted(MEANINGS))
def test_blocks_are_those_of_loops(tmp_path: Path, name: str) -> None:
    directory, meaning = make(name, tmp_path, **SIZES), MEANINGS[name]
    reference = load(directory)
    mask = directory / "mask_embedding.pt"
    row = torch.load(mask)["embedding"].double().numpy() if mask.is_file() else None
    logits, confidence = in_loops(meaning, directory, reference, row)
    found = block(reference)
    np.testing.assert_array_equal(np.isinf(found.logits), np.isinf(logits))
    known = np.isfinite(logits)
    np.testing.assert_allclose(found.logits[known], logits[known], atol=EXACT)
    if not confidence:
        assert found.confidence is None
        return
    assert found.confidence is not None
    assert np.isnan(found.confidence[: meaning.first_slot]).all()
    np.testing.assert_allclose(found.confidence[meaning.first_slot :], confidence, atol=EXACT)


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("name", ["speculators_dflash", "nemotron", "kolibri"])
def test_one_causality_for_all_layers(tmp_path: Path, name: str, flag: bool) -> None:
    """As llama.cpp has one flag, with the window of each layer counted from each slot."""
    directory, own = make(name, tmp_path, **SIZES), MEANINGS[name]
    meaning = Meaning(own.first_slot, own.windows, (flag, flag))
    reference = load(directory, causal=flag, window_by_distance=True)
    assert reference.facts.causal is flag
    logits, _ = in_loops(meaning, directory, reference)
    known = np.isfinite(logits)
    np.testing.assert_allclose(block(reference).logits[known], logits[known], atol=EXACT)


#: what must not be misread without notice: a meaning that is wrong, and by how much the logits say so
MISREADINGS = {
    "lfm2": Meaning(0, FULL, BOTH_WAYS, eps=1e-5),
    "mimo": Meaning(1, WINDOWS, BOTH_WAYS, value_scale=0.612, eps=1e-5),
    "muse": Meaning(1, FULL, BOTH_WAYS, eps=1e-5),
    "nemotron": Meaning(1, WINDOWS, BOTH_WAYS),
    "specforge_yarn": Meaning(0, FULL, BOTH_WAYS, eps=1e-5),
    "speculators_dspark_bonus": Meaning(1, WINDOWS, CAUSAL),
    "zlab_dflash_windows": Meaning(1, MIXED, CAUSAL),
}


@pytest.mark.parametrize("name", sorted(MISREADINGS))
def test_misreadings_show(tmp_path: Path, name: str) -> None:
    directory = make(name, tmp_path, **SIZES)
    reference = load(directory, **({"own_mask_row": False} if name == "mimo" else {}))
    logits, _ = in_loops(MISREADINGS[name], directory, reference)
    known = np.isfinite(logits)
    assert np.abs(block(reference).logits[known] - logits[known]).max() > 0.05


def changed_slots(reference: Reference, **change: Any) -> list[bool]:
    """Which slots' logits are others with the features of one position changed, or the mask token's embedding."""
    features, chosen = features_of(reference), chosen_of(reference)
    moved = features.copy()
    moved[change["position"]] += 1
    before, after = (reference.block(x, ANCHOR, chosen).logits for x in (features, moved))
    known = np.isfinite(before[0])
    return [bool(np.abs(a[known] - b[known]).max() > 1e-6) for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize(
    ("name", "options", "position", "slots"),
    [
        # 9 positions back, a slot itself counted: position 7 for the anchor's slot at 15, the next for the next slot
        ("nemotron", {}, 6, 0),
        ("nemotron", {}, 7, 1),
        ("nemotron", {}, 9, 3),
        # 9 positions before the block, for all slots
        ("speculators_dspark_anchor", {}, 5, 0),
        ("speculators_dspark_anchor", {}, 6, 8),
        ("speculators_dspark_anchor", {"window_by_distance": True}, 6, 0),
        ("speculators_dspark_anchor", {"window_by_distance": True}, 7, 1),
    ],
)
def test_where_a_window_ends(tmp_path: Path, name: str, options: dict[str, Any], position: int, slots: int) -> None:
    reference = load(make(name, tmp_path, **(SIZES | {"layers": 1})), **options)
    seen = changed_slots(reference, position=position)
    assert seen == [slot < slots for slot in range(8)]


@pytest.mark.parametrize(("name", "causal"), [("nemotron", True), ("zlab_dflash_windows", False), ("mimo", False)])
def test_a_causal_anchor_does_not_see_the_mask(tmp_path: Path, name: str, causal: bool) -> None:
    """In the draft with both kinds of layers it does, by the full one."""
    directory = make(name, tmp_path, **SIZES)
    other = EMBED.copy()
    other[507] += 1
    options: dict[str, Any] = {"head": HEAD, "own_mask_row": False}
    before, after = (block(Reference.load(directory, embed=table, **options)).logits for table in (EMBED, other))
    moved = np.abs(before - after).max(1)
    assert bool(moved[0] == 0) is causal and moved[1:].min() > 0.01


def test_a_sink_takes_its_share(tmp_path: Path) -> None:
    directory = make("mimo", tmp_path, **SIZES)
    sinks = [f"layers.{i}.self_attn.attention_sink_bias" for i in (0, 1)]
    none = {name: np.full(4, -np.inf) for name in sinks}
    all_of_it = {name: np.full(4, 1e4) for name in sinks}
    draft = Draft(MEANINGS["mimo"], read(directory, EMBED, HEAD))
    for name in sinks:
        del draft.w[name]
    reference = load(directory, weights=none, own_mask_row=False)
    states = draft.states(features_of(reference), ANCHOR, 8)
    np.testing.assert_allclose(block(reference).logits, [HEAD @ x for x in states], atol=EXACT)
    silent = {f"layers.{i}.self_attn.o_proj.weight": np.zeros((128, 128)) for i in (0, 1)}
    starved, mute = (block(load(directory, weights=weights)) for weights in (all_of_it, silent))
    np.testing.assert_allclose(starved.logits, mute.logits, atol=EXACT)


def test_neighbouring_pairs_are_neox_pairs_of_permuted_heads(tmp_path: Path) -> None:
    """The order that llama.cpp's files have: a head's even numbers before its odd ones."""
    directory = make("lfm2", tmp_path / "own", **SIZES)
    order = np.r_[0:32:2, 1:32:2]
    permuted: dict[str, Any] = {}
    for name, matrix in read(directory, EMBED, HEAD).items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "q_norm.weight", "k_norm.weight")):
            permuted[name] = matrix.reshape(-1, 32, *matrix.shape[1:])[:, order].reshape(matrix.shape)
    assert len(permuted) == 8
    neox = make("lfm2", tmp_path / "neox", **SIZES)
    rewrite(neox, rope_is_neox_style=True)
    expected, found = block(load(directory)), block(load(neox, weights=permuted))
    np.testing.assert_allclose(found.logits, expected.logits, atol=EXACT)


def test_all_forms_of_the_mask_s_row_are_one(tmp_path: Path) -> None:
    found = [block(load(make(name, tmp_path / name, **SIZES))) for name in ("mimo", "mimo_bare", "mimo_keyed")]
    np.testing.assert_array_equal(found[0].logits, found[1].logits)
    np.testing.assert_array_equal(found[0].logits, found[2].logits)
    table = EMBED.copy()
    table[507] = torch.load(tmp_path / "mimo_bare" / "mask_embedding.pt").double()
    held = Reference.load(tmp_path / "mimo", embed=table, head=HEAD, own_mask_row=False)
    np.testing.assert_array_equal(block(held).logits, found[0].logits)


def test_scales_of_a_target_s_config_are_no_draft_s(tmp_path: Path) -> None:
    directory = make("specforge", tmp_path, **SIZES)
    plain = block(load(directory)).logits
    top = {"input_embedding_scale": 9, "output_multiplier": 3.0, "final_logit_softcapping": 4}
    rewrite(directory, **top)
    np.testing.assert_array_equal(block(load(directory)).logits, plain)
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    rewrite(directory, dflash_config=config["dflash_config"] | {"input_embedding_scale": 2.0})
    doubled = block(Reference.load(directory, embed=EMBED, head=HEAD)).logits
    rewrite(directory, dflash_config=config["dflash_config"])
    held = block(Reference.load(directory, embed=2 * EMBED, head=HEAD)).logits
    np.testing.assert_allclose(doubled, held, atol=EXACT)


def test_scales_and_cap_of_z_lab_s_class(tmp_path: Path) -> None:
    """Nested before what is at the top, as its class looks them up."""
    directory = make("zlab_dflash", tmp_path, **SIZES)
    doubled = block(Reference.load(directory, embed=2 * EMBED, head=HEAD)).logits
    nested = {"mask_token_id": 507, "target_layer_ids": [0, 1, 2], "input_embedding_scale": 2.0}
    rewrite(directory, dflash_config=nested, input_embedding_scale=9, output_multiplier=3.0, final_logit_softcapping=4)
    np.testing.assert_allclose(block(load(directory)).logits, 4 * np.tanh(3 * doubled / 4), atol=EXACT)
    np.testing.assert_allclose(block(load(directory, plain_logits=True)).logits, doubled, atol=EXACT)
