"""How much of a head turns: the converter and the reference, which share no code, take the same drafts for MiMo's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from dspark_convert.plan import plan_for_directory
from dspark_convert.reference.facts import read_facts
from fixtures.families import make

SINKS = ".attention_sink_bias"
SCALE, BASE = "attention_value_scale", "backbone_rotary_base"
#: of a head of 32
WHOLE, HALF, QUARTER = 32, 16, 8


def bare(*keys: str) -> dict[str, Any]:
    """MiMo's without sinks, and of its own keys without ``keys``."""
    return {"dflash_config": dict.fromkeys(("attention_sink_bias", *keys)), "sinks": False}


#: name -> fixture, change of its config, dimensions that turn
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "MiMo's": ("mimo", {}, HALF),
    "MiMo's without sinks": ("mimo", bare(), HALF),
    "MiMo's by the scale of its values": ("mimo", bare(BASE), HALF),
    "MiMo's by the base": ("mimo", bare(SCALE), HALF),
    "MiMo's by its sinks": ("mimo", {"dflash_config": {SCALE: None, BASE: None}}, HALF),
    "MiMo's, all of its evidence gone": ("mimo", bare(SCALE, BASE), WHOLE),
    "MiMo's, the share beside the base of the angles": (
        "mimo",
        {"partial_rotary_factor": None, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25}},
        QUARTER,
    ),
    "MiMo's without a share": ("mimo", {"partial_rotary_factor": None}, WHOLE),
    "z-lab's": ("zlab_dflash", {"partial_rotary_factor": 0.5}, WHOLE),
    "z-lab's with its target's scale": ("zlab_dflash", {"partial_rotary_factor": 0.5, SCALE: 0.6}, WHOLE),
    "another with sinks": ("nemotron", {"partial_rotary_factor": 0.5}, WHOLE),
    "one with a Markov head": (
        "fork_label",
        {"partial_rotary_factor": 0.5, "dflash_config": {SCALE: 0.6}},
        WHOLE,
    ),
    "speculators'": ("speculators_dflash", {"partial_rotary_factor": 0.5, "dflash_config": {SCALE: 0.6}}, WHOLE),
}


def changed(name: str, changes: dict[str, Any], root: Path) -> Path:
    """None drops a key, and ``sinks`` false the tensors."""
    draft = make(name, root)
    path = draft / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        if key == "dflash_config":
            value = {**config.get(key, {}), **value}
            value = {inner: kept for inner, kept in value.items() if kept is not None}
        config[key] = value
    kept = {key: value for key, value in config.items() if value is not None and key != "sinks"}
    path.write_text(json.dumps(kept), encoding="utf-8")
    if changes.get("sinks") is False:
        for shard in draft.glob("*.safetensors"):
            save_file({k: v for k, v in load_file(shard).items() if not k.endswith(SINKS)}, shard)
        for index in draft.glob("*.index.json"):
            index.unlink()
    return draft


@pytest.mark.parametrize("name", CASES)
def test_both_turn_as_much_of_a_head(name: str, tmp_path: Path) -> None:
    fixture, changes, dimensions = CASES[name]
    draft = changed(fixture, changes, tmp_path)
    plan = plan_for_directory(draft)
    assert plan.draft is not None, plan.findings
    assert not [f for f in plan.errors if f.rule != "mask-embedding-target"]
    rotation = read_facts(draft).rotation
    assert rotation is not None
    assert (plan.draft.rope.dimension_count, rotation.dims) == (dimensions, dimensions)


@pytest.mark.parametrize(
    ("share", "words"),
    [(2, "partial_rotary_factor has to be at most 1, found 2"), (0.1, "of which 3 turn, do not fit together")],
)
def test_shares_that_the_reference_refuses(share: float, words: str, tmp_path: Path) -> None:
    draft = changed("mimo", {"partial_rotary_factor": share}, tmp_path)
    with pytest.raises(ValueError, match=words):
        read_facts(draft)
