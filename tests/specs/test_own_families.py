"""What a draft of speculators, Nemotron, Gemma4 or DFlash2 means, and which of them are refused with which words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_convert.draft import Draft
from dspark_convert.plan import Plan, plan_for_directory
from dspark_convert.target import open_target_directory
from fixtures.dflash2 import make_dflash2_pair
from fixtures.families import make, make_pair
from fixtures.gemma4 import make_gemma4_pair
from tests.checkpoints import ABSENT
from tests.conftest import Convert

SPECULATORS = ("speculators_dspark_bonus", "speculators_dspark_anchor")
TOKENS = "speculators_config.proposal_methods"


def change(draft: Path, changes: Mapping[str, Any]) -> None:
    """Keys of config.json, "a.b" inside an object; ``ABSENT`` takes one away."""
    path = draft / "config.json"
    config = json.loads(path.read_text())
    for key, value in changes.items():
        *parents, last = key.split(".")
        inside = config
        for parent in parents:
            inside = inside[parent]
        inside.pop(last, None)
        if value is not ABSENT:
            inside[last] = value
    path.write_text(json.dumps(config))


def plan(name: str, root: Path, changes: Mapping[str, Any] | None = None) -> Plan:
    draft = make(name, root)
    change(draft, changes or {})
    return plan_for_directory(draft)


def meaning(name: str, root: Path, changes: Mapping[str, Any] | None = None) -> Draft:
    made = plan(name, root, changes)
    assert made.errors == () and made.draft is not None
    return made.draft


def proposals(tokens: object) -> dict[str, Any]:
    return {"sample_from_anchor": ABSENT, TOKENS: ABSENT if tokens is None else [{"speculative_tokens": tokens}]}


@pytest.mark.parametrize("name", SPECULATORS)
@pytest.mark.parametrize(
    ("changes", "anchor"),
    [
        # of blocks of 8
        (proposals(8), True),
        (proposals(7), False),
        (proposals(None), True),
        (proposals(3), True),
        (proposals(8) | {"sample_from_anchor": False}, False),
        (proposals(7) | {"sample_from_anchor": True}, True),
        (proposals(8) | {"dspark_bonus_anchor": True}, False),
    ],
    ids=str,
)
def test_the_anchor_of_speculators_dspark(name: str, changes: dict[str, Any], anchor: bool, tmp_path: Path) -> None:
    draft = meaning(name, tmp_path, changes)
    assert draft.sample_from_anchor is anchor
    assert draft.drafts_per_block == 8 - (not anchor)


@pytest.mark.parametrize("tokens", [8, 7])
def test_speculators_are_told_by_their_taps_too(tokens: int, tmp_path: Path) -> None:
    """With the keys of the layers at the top, as copies of its configs have them."""
    draft = make("speculators_dspark_bonus", tmp_path)
    config = json.loads((draft / "config.json").read_text())
    layers = config.pop("transformer_layer_config")
    (draft / "config.json").write_text(json.dumps(layers | config))
    change(draft, proposals(tokens))
    made = plan_for_directory(draft)
    assert made.draft is not None
    assert made.draft.sample_from_anchor is (tokens == 8)
    assert made.findings == plan("speculators_dspark_bonus", tmp_path / "other").findings


@pytest.mark.parametrize("tokens", [8, 7, None])
def test_what_speculators_dflash_proposes_says_nothing_of_the_anchor(tokens: int | None, tmp_path: Path) -> None:
    draft = meaning("speculators_dflash", tmp_path, proposals(tokens))
    assert (draft.kind, draft.sample_from_anchor, draft.drafts_per_block) == ("dflash", False, 7)


@pytest.mark.parametrize("name", [*SPECULATORS, "speculators_dflash"])
@pytest.mark.parametrize(("flag", "causal"), [(False, True), (ABSENT, True), (True, False)])
def test_windows_of_speculators_are_causal(name: str, flag: object, causal: bool, tmp_path: Path) -> None:
    draft = meaning(name, tmp_path, {"sliding_window_non_causal": flag})
    assert draft.causal is causal
    assert bool(draft.causal_pattern) is (causal and name == "speculators_dflash")


def test_an_algorithm_that_is_not_the_class_s_is_refused(tmp_path: Path) -> None:
    errors = plan(SPECULATORS[0], tmp_path, {"speculators_config.algorithm": "dflash"}).errors
    assert [(f.rule, f.where) for f in errors] == [("config-unsupported", "speculators_config.algorithm")]


def test_the_width_of_heads_may_be_left_to_their_norms(tmp_path: Path) -> None:
    """Of Qwen3's classes it is no quotient: 128 in Qwen3-4B's 32 heads of 2560."""
    make("zlab_dflash", tmp_path, head_dim=64)
    change(tmp_path, {"head_dim": ABSENT})
    made = plan_for_directory(tmp_path)
    assert made.findings == () and made.draft is not None and made.draft.head_dim == 64


@pytest.mark.parametrize("name", ["zlab_dflash", "muse", "mimo", "speculators_dflash_full"])
def test_dflash_that_is_read_from_the_anchor_on_gets_a_head_of_zeros(name: str, tmp_path: Path) -> None:
    """llama.cpp looks for a Markov head to tell such drafts, so its tensors must be in the file."""
    pair = make_pair(name, tmp_path)
    change(pair.draft_dir, {"sample_from_anchor": True})
    made = plan_for_directory(pair.draft_dir, open_target_directory(pair.target_dir))
    assert made.errors == () and made.draft is not None
    assert (made.draft.kind, made.draft.markov_rank, made.draft.markov_head_type) == ("dspark", 32, "zero")
    zeros = {job.name: job.shape for job in made.tensors if job.transform == "zeros"}
    assert zeros == {"markov_w1.weight": (32, 512), "markov_w2.weight": (32, made.draft.draft_vocab_size)}


def test_marks_of_speculators_that_are_not_its_table_s(tmp_path: Path) -> None:
    make(SPECULATORS[0], tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["t2d"] = ~tensors["t2d"]
    save_file(tensors, path)
    told = plan_for_directory(tmp_path).findings
    assert [f.rule for f in told if f.severity != "info"] == ["d2t-disagrees"]


def test_taps_of_speculators_are_layer_inputs(tmp_path: Path) -> None:
    draft = meaning(SPECULATORS[0], tmp_path, {"aux_hidden_state_layer_ids": [0, 1, 5]})
    assert draft.target_layers == (0, 1, 5)


def test_nemotron_s_flags_must_agree(tmp_path: Path) -> None:
    draft = meaning("nemotron", tmp_path / "a", {"dflash_config.sample_from_anchor": ABSENT})
    assert draft.sample_from_anchor is False
    errors = plan("nemotron", tmp_path / "b", {"sample_from_anchor": True}).errors
    assert [(f.rule, f.where) for f in errors] == [("config-disagrees", "sample_from_anchor")]
    errors = plan("nemotron", tmp_path / "c", {"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}).errors
    assert [(f.rule, f.where) for f in errors] == [("config-disagrees", "target_layer_ids")]


def test_nemotron_s_sinks_must_be_there_where_the_config_says_so(tmp_path: Path) -> None:
    draft = make("nemotron", tmp_path)
    tensors = load_file(draft / "model.safetensors")
    save_file({n: t for n, t in tensors.items() if "sink" not in n}, draft / "model.safetensors")
    assert [f.rule for f in plan_for_directory(draft).errors] == ["config-value"]
    change(draft, {"attention_sink_bias": False, "dflash_config.attention_sink_bias": ABSENT})
    made = plan_for_directory(draft)
    assert made.errors == () and made.draft is not None and not made.draft.has_sinks


@pytest.mark.parametrize("architecture", ["Qwen3DSparkModel", "DFlashDraftModel"])
def test_nemotron_s_dflash_sibling_under_either_class(architecture: str, tmp_path: Path) -> None:
    draft = make("nemotron", tmp_path)
    tensors = load_file(draft / "model.safetensors")
    save_file({n: t for n, t in tensors.items() if "markov" not in n}, draft / "model.safetensors")
    change(draft, {"architectures": [architecture], "markov_rank": ABSENT, "markov_head_type": ABSENT})
    made = plan_for_directory(draft)
    assert made.errors == () and made.draft is not None
    found = made.draft
    assert (found.kind, found.sample_from_anchor, found.causal, found.has_sinks) == ("dflash", False, True, True)
    assert [job.type.name for job in made.tensors if job.name == "blk.2.ffn_up.weight"] == ["NVFP4"]


def gemma4(root: Path, **changes: Any) -> Plan:
    return plan_for_directory(make_gemma4_pair(root, **changes).draft_dir)


@pytest.mark.parametrize(
    ("rope", "base", "scaling"),
    [
        (None, 1e6, {"type": "proportional", "rotated": 16}),
        ({"rope_theta": 5e5, "rope_type": "proportional", "partial_rotary_factor": 0.5}, 5e5, 32),
        ({"full_attention": {"rope_theta": 1e4, "rope_type": "default"}}, 1e4, None),
    ],
)
def test_gemma4_s_rotation(rope: object, base: float, scaling: object, tmp_path: Path) -> None:
    draft = gemma4(tmp_path, rope_parameters=rope).draft
    assert draft is not None
    assert (draft.rope.freq_base, draft.rope.dimension_count) == (base, 64)
    found = draft.rope.scaling
    assert found == scaling or (found is not None and found["rotated"] == scaling)


@pytest.mark.parametrize(
    ("changes", "where", "says"),
    [
        ({"attention_k_eq_v": False}, "config.json: attention_k_eq_v", "norms a Gemma4 draft's values only where"),
        ({"layer_types": ["sliding_attention"] * 3}, "config.json: layer_types", "layers of full attention alone"),
        ({"hidden_activation": "silu"}, "hidden_activation", "GELU"),
        ({"enable_moe_block": True}, "enable_moe_block", "no experts"),
        ({"num_kv_shared_layers": 1}, "num_kv_shared_layers", "keys and values of its own"),
        ({"hidden_size_per_layer_input": 16}, "hidden_size_per_layer_input", "inputs of every layer's own"),
        (
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "proportional", "partial_rotary_factor": 0.26}},
            "the tensors (whole(head_dim * rope_share) if rope_type == 'proportional' else head_dim)",
            "RoPE rotates whole pairs",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_gemma4_drafts_that_llama_cpp_cannot_run(
    changes: dict[str, Any], where: str, says: str, tmp_path: Path
) -> None:
    errors = {f.where: f.message for f in gemma4(tmp_path, **changes).errors}
    assert where in errors and says in errors[where]


def test_gemma4_s_confidence_head_has_two_names(tmp_path: Path) -> None:
    one = plan_for_directory(make_gemma4_pair(tmp_path / "a").draft_dir)
    two = plan_for_directory(make_gemma4_pair(tmp_path / "b", confidence_name="confidence_proj").draft_dir)
    assert one.errors == two.errors == ()
    assert [(job.name, job.shape) for job in one.tensors] == [(job.name, job.shape) for job in two.tensors]


@pytest.mark.parametrize(
    ("dflash", "where", "says"),
    [
        ({"conv_group_size": 48}, "conv_group_size", "groups of one size"),
        ({"selector_top_k": 11}, "selector_top_k", "a row of hidden_size numbers"),
        ({"sample_from_anchor": True}, "sample_from_anchor", "from slot 1 on"),
        ({"block_size": 1}, "block_size", "drafts nothing"),
    ],
)
def test_dflash2_drafts_that_llama_cpp_cannot_run(
    dflash: dict[str, Any], where: str, says: str, tmp_path: Path
) -> None:
    draft = make_dflash2_pair(tmp_path).draft_dir
    assert plan_for_directory(draft).errors == ()
    change(draft, {f"dflash_config.{key}": value for key, value in dflash.items()})
    errors = {f.where: f.message for f in plan_for_directory(draft).errors}
    assert says in errors[f"config.json: dflash_config.{where}"]


def test_dflash2_has_the_target_s_whole_vocabulary(tmp_path: Path) -> None:
    draft = make_dflash2_pair(tmp_path).draft_dir
    tensors = load_file(draft / "model.safetensors")
    reduced = {"d2t": torch.zeros(40, dtype=torch.int64), "lm_head.weight": torch.zeros(40, 128).bfloat16()}
    save_file(tensors | reduced, draft / "model.safetensors")
    change(draft, {"draft_vocab_size": 40})
    errors = plan_for_directory(draft).errors
    assert {f.rule for f in errors} == {"config-value", "tensor-unsupported"}
    assert all("the target's whole vocabulary" in f.message for f in errors)


def laguna(root: Path) -> Path:
    """As Poolside publishes its drafts: one matrix for queries, keys and values, a gate a head, a norm a tap."""
    draft = make("zlab_dflash", root)
    change(draft, {"architectures": ["DFlashLagunaForCausalLM"]})
    tensors = load_file(draft / "model.safetensors")
    for layer in range(3):
        attention = f"layers.{layer}.self_attn"
        parts = [tensors.pop(f"{attention}.{part}_proj.weight") for part in "qkv"]
        tensors[f"{attention}.qkv_proj.weight"] = torch.cat(parts)
        tensors[f"{attention}.g_proj.weight"] = torch.ones(4, 128, dtype=torch.bfloat16)
        tensors[f"aux_hidden_norms.{layer}.weight"] = torch.ones(128, dtype=torch.bfloat16)
    save_file(tensors, draft / "model.safetensors")
    return draft


@pytest.mark.parametrize(
    ("maker", "kind", "says"),
    [
        (lambda root: make("bonsai", root), "dspark", ("no graph for log-SNR conditioning",)),
        (lambda root: make("ornith", root), "dspark", ("no gate on the attention's output",)),
        (laguna, "dflash", ("no norm for each tap", "no gate on the attention's heads", "once more each")),
        (lambda root: make("markov_gated", root), "dspark", ("a gated Markov head",)),
        (lambda root: make("markov_rnn", root), "dspark", ("a recurrent (rnn) Markov head",)),
    ],
    ids=["bonsai", "ornith", "laguna", "gated", "rnn"],
)
def test_recognised_shown_and_refused(
    maker: Callable[[Path], Path], kind: str, says: tuple[str, ...], tmp_path: Path, inspect: Convert
) -> None:
    shown = inspect(maker(tmp_path / "draft"), "--json")
    assert shown.document["draft"]["kind"] == kind
    assert shown.document["draft"]["layers"] == 3
    assert {f["rule"] for f in shown.document["findings"] if f["severity"] == "error"} <= {
        "family-unsupported",
        "tensor-unsupported",
        "config-value",
    }
    for words in says:
        assert words in shown.told


def test_ornith_is_shown_with_its_own_rotation(tmp_path: Path) -> None:
    draft = plan("ornith", tmp_path).draft
    assert draft is not None and draft.rope.dimension_count == 8
