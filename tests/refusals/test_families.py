"""What keeps drafts of other families from being converted: their own keys and tensors, spoilt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import families
from tests.checkpoints import Pair, Tensor, Tensors
from tests.conftest import Convert
from tests.refusals.case import Case, check_refused, config, put, tensors, without

DOWN = "layers.1.mlp.down_proj.weight"
SINKS = "layers.{}.self_attn.attention_sink_bias"
Q_NORM = "layers.1.self_attn.q_norm.weight"


def nested(**changes: Any) -> Any:
    """Keys of dflash_config."""

    def damage(pair: Pair) -> None:
        path = pair.draft / "config.json"
        held = json.loads(path.read_text())["dflash_config"]
        pair.config({"dflash_config": held | changes})

    return damage


def retyped(name: str, dtype: str) -> Any:
    """The same bytes called by another type of the same size."""

    def change(tensors: Tensors) -> None:
        tensors[name] = tensors[name]._replace(dtype=dtype)

    return tensors(change)


def held(name: str, tensor: Tensor) -> Any:
    def change(tensors: Tensors) -> None:
        tensors[name] = tensor

    return change


def value(key: str, *says: str, damage: Any) -> Case:
    return Case(f"{key} {says}", damage, (("config-value", f"config.json: {key}"),), says)


CASES = [
    ("nemotron_inner", Case("no scales", tensors(without(f"{DOWN}_scale")), (("tensor-scale-missing", DOWN),))),
    ("nemotron_inner", Case("no number", tensors(without(f"{DOWN}_scale_2")), (("tensor-scale-missing", DOWN),))),
    *(
        (
            "nemotron_inner",
            Case(
                f"a number of {number}",
                tensors(held(f"{DOWN}_scale_2", Tensor("F32", (), data))),
                (("tensor-scale", f"{DOWN}_scale_2"),),
                (f"is {number}, expected a positive number",),
            ),
        )
        for number, data in (("-1", b"\0\0\x80\xbf"), ("0", bytes(4)))
    ),
    (
        "nemotron_inner",
        Case("neither", tensors(without(f"{DOWN}_scale", f"{DOWN}_scale_2")), (("tensor-scale-missing", DOWN),)),
    ),
    (
        "nemotron_inner",
        Case(
            "the codes alone are gone",
            tensors(without(DOWN)),
            (("tensor-missing", DOWN),),
            (f"although its scale {DOWN}_scale is there",),
        ),
    ),
    (
        "nemotron_inner",
        Case("scales of another type", retyped(f"{DOWN}_scale", "F8_E8M0"), (("tensor-scale", f"{DOWN}_scale"),)),
    ),
    (
        "nemotron_inner",
        Case(
            "scales for 32 columns",
            tensors(put(f"{DOWN}_scale", "F8_E4M3", 128, 8)),
            (("tensor-scale", f"{DOWN}_scale"),),
            ("[128, 16]", "one for 16 of the 256 columns"),
        ),
    ),
    (
        "nemotron_inner",
        Case(
            "a number a row",
            tensors(put(f"{DOWN}_scale_2", "F32", 128)),
            (("tensor-scale", f"{DOWN}_scale_2"),),
            ("one F32 number",),
        ),
    ),
    (
        "nemotron_inner",
        Case("other codes", tensors(put(DOWN, "U8", 128, 64)), (("tensor-shape", DOWN),), ("[128, 128]", "[128, 256]")),
    ),
    (
        "nemotron_inner",
        Case(
            "taps that disagree",
            config(eagle_aux_hidden_state_layer_ids=[1, 2, 4]),
            (("config-disagrees", "target_layer_ids"),),
            ("[0, 1, 2]", "[0, 1, 3]"),
        ),
    ),
    (
        "nemotron_inner",
        Case(
            "anchors that disagree",
            config(dspark_bonus_anchor=False),
            (("config-disagrees", "sample_from_anchor"),),
            ("dspark_bonus_anchor",),
        ),
    ),
    ("mimo", Case("sinks of one layer", tensors(without(SINKS.format(2))), (("tensor-missing", SINKS.format(2)),))),
    ("mimo", value("dflash_config.attention_sink_bias", "sinks", damage=nested(attention_sink_bias=False))),
    ("mimo", value("partial_rotary_factor", "0.001 to 1.0", damage=config(partial_rotary_factor=2))),
    (
        "mimo",
        Case(
            "neighbouring pairs in half of a head",
            config(rope_interleaved=True),
            (("config-value", "config.json: rope_interleaved (inverted)"),),
            ("whole head",),
        ),
    ),
    ("mimo", value("dflash_config.attention_value_scale", "finite", damage=nested(attention_value_scale="0.6"))),
    ("zlab_dflash", value("markov_rank", "no Markov head", damage=config(markov_rank=16))),
    (
        "zlab_dflash",
        Case(
            "a head of confidence alone",
            tensors(put("confidence_head.proj.weight", "BF16", 1, 128)),
            (("tensor-unexpected", "confidence_head.proj.weight"),),
        ),
    ),
    ("specforge", Case("MLA", nested(attention_mode="mla"), (("config-unsupported", "dflash_config.attention_mode"),))),
    (
        "specforge",
        Case(
            "another projector", nested(projector_type="mlp"), (("config-unsupported", "dflash_config.projector_type"),)
        ),
    ),
    (
        "specforge_yarn",
        Case(
            "another scaling",
            config(rope_parameters={"rope_theta": 1e4, "rope_type": "dynamic", "factor": 2.0}),
            (("config-value", "config.json: rope_parameters.rope_type"),),
            ("'yarn'",),
        ),
    ),
    (
        "specforge_early",
        Case(
            "both spellings",
            tensors(put("markov_head.markov_w1.weight", "BF16", 512, 16)),
            (("tensor-duplicate", "markov_head.markov_w1.weight"),),
        ),
    ),
    ("muse", Case("no window", config(sliding_window=None), (("config-missing", "sliding_window"),))),
    ("lfm2", Case("a head of another size", tensors(put(Q_NORM, "BF16", 64)), (("tensor-shape", Q_NORM),))),
    (
        "speculators_dspark_bonus",
        Case(
            "no table",
            tensors(without("d2t")),
            (("config-value", "config.json: draft_vocab_size"), ("tensor-missing", "d2t")),
            ("d2t",),
        ),
    ),
]


@pytest.mark.parametrize(("name", "case"), CASES, ids=lambda each: getattr(each, "id", each))
def test_refused(name: str, case: Case, tmp_path: Path, convert: Convert) -> None:
    check_refused(case, plain(name, tmp_path), convert)


def plain(name: str, root: Path) -> Pair:
    """The tiny pair of a family, its weights in one file of the usual name."""
    made = families.make_pair(name, root / "pair")
    pair = Pair(made.draft_dir.parent)
    if not pair.shard.exists():
        next(pair.draft.glob("*.safetensors")).rename(pair.shard)
        next(pair.draft.glob("*.index.json")).unlink()
    return pair


def test_every_pair_is_sound_before_it_is_spoilt(tmp_path: Path, convert: Convert) -> None:
    for name in sorted({name for name, _ in CASES}):
        pair = plain(name, tmp_path / name)
        ended = convert(pair.draft, "--target-model-dir", pair.target, "--dry-run", "--json")
        assert ended.code == 0, (name, ended.told)
