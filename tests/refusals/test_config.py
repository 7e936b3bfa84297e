"""Configs that are wrong by themselves or against the tensors (failures.md 1b, 1e)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checkpoints import ABSENT, Pair
from tests.conftest import Convert
from tests.refusals.case import Case, both, check_refused, config, put, tensors

MASK = "config.json: mask_token_id"
TAPS = "target_layer_ids"


def mask(value: Any, *says: str) -> Case:
    shown = str(value).replace("'", "")
    return Case(f"D18 mask {value!r}", config(mask_token_id=value), (("config-value", MASK),), (shown, *says))


def heads(q: Any, kv: Any, where: str, more: tuple[tuple[str, str], ...] = ()) -> Case:
    return Case(
        f"D65 {q} heads, {kv} of keys",
        config(num_attention_heads=q, num_key_value_heads=kv),
        (("config-value", f"config.json: {where}"), *more),
    )


def value(key: str, bad: Any, *says: str) -> Case:
    return Case(f"{key} {bad!r}"[:60], config(**{key: bad}), (("config-value", f"config.json: {key}"),), says)


def unsupported(where: str, *says: str, **changes: Any) -> Case:
    return Case(f"{where} {changes}", config(**changes), (("config-unsupported", where),), (where, *says))


def missing(key: str, name: str | None = None) -> Case:
    return Case(f"{key} missing", config(**{key: ABSENT}), (("config-missing", name or key),), (key, "config.json"))


#: with other head counts the projections have another shape too
WIDE = tuple(("tensor-shape", f"layers.{i}.self_attn.{kv}_proj.weight") for i in range(3) for kv in "kv")

ROPE = {"rope_theta": 10000.0, "rope_type": "default"}

CASES = [
    Case(
        "D17 no mask",
        config(mask_token_id=ABSENT),
        (("config-missing", "mask_token_id"),),
        ("mask_token_id", "dflash_config.mask_token_id"),
    ),
    mask(99999, "512"),
    mask(512, "512"),
    mask("507", "an integer"),
    mask(507.0, "an integer"),
    mask(True, "an integer"),
    mask([507], "an integer"),
    mask(-1, "at least 0"),
    Case("D20 tap beyond", config(target_layer_ids=[0, 1, 77]), (("taps-out-of-range", TAPS),), ("78", "4-layer")),
    Case("D20 tap at the end", config(target_layer_ids=[0, 1, 3]), (("taps-out-of-range", TAPS),), ("0 to 3",)),
    Case(
        "D20 tap below the embeddings",
        config(target_layer_ids=[-2, 0, 1]),
        (("config-value", "config.json: target_layer_ids"),),
        ("-2", "-1"),
    ),
    Case(
        "D21 two taps",
        config(target_layer_ids=[0, 1]),
        (("tensor-shape", "fc.weight"),),
        ("[128, 384]", "[128, 256]", "n_taps"),
    ),
    Case(
        "D21 four taps",
        config(target_layer_ids=[-1, 0, 1, 2]),
        (("tensor-shape", "fc.weight"),),
        ("[128, 384]", "[128, 512]"),
    ),
    Case(
        "D21 duplicates, --strict",
        config(target_layer_ids=[1, 1, 1]),
        (),
        ("[2, 2, 2]", "twice"),
        ("--strict",),
        warnings=(("taps-duplicate", TAPS),),
    ),
    Case(
        "D21 unsorted, --strict",
        config(target_layer_ids=[2, 0, 1]),
        (),
        ("[3, 1, 2]", "order"),
        ("--strict",),
        warnings=(("taps-unsorted", TAPS),),
    ),
    missing("target_layer_ids"),
    value("target_layer_ids", [], "a list of integers"),
    value("target_layer_ids", [0, 1.0, 2], "a list of integers"),
    value("target_layer_ids", [0, True, 2], "a list of integers"),
    value("target_layer_ids", ["x"] * 100_000, "a list of integers"),
    missing("block_size"),
    value("block_size", 0, "1 to 1024"),
    value("block_size", 2**31, "1 to 1024"),
    value("block_size", "7", "an integer"),
    missing("hidden_size"),
    missing("rms_norm_eps"),
    missing("max_position_embeddings", "context_length"),
    value("max_position_embeddings", 2**32, "2147483647"),
    value("hidden_size", 2**40, "1048576"),
    Case(
        "D24 padded vocabulary",
        both(
            config(draft_vocab_size=576),
            tensors(put("lm_head.weight", "BF16", 576, 128), put("markov_head.markov_w2.weight", "BF16", 576, 16)),
        ),
        (
            ("config-value", "config.json: draft_vocab_size"),
            ("tensor-shape", "lm_head.weight"),
            ("tensor-shape", "markov_head.markov_w2.weight"),
        ),
        ("576", "512", "whole vocabulary"),
    ),
    Case(
        "D29 reduced vocabulary",
        both(config(draft_vocab_size=256), tensors(put("d2t", "I64", 256))),
        (("config-value", "config.json: draft_vocab_size"), ("tensor-unsupported", "d2t")),
        ("256", "reduced"),
    ),
    Case(
        "D15 gated",
        config(markov_head_type="gated"),
        (("config-value", "config.json: markov_head_type"),),
        ("'gated'", "'vanilla'", "llama.cpp"),
    ),
    Case(
        "D15 rnn, nested",
        config(markov_head_type=ABSENT, dflash_config={"markov_head_type": "rnn"}),
        (("config-value", "config.json: dflash_config.markov_head_type"),),
        ("'rnn'", "'vanilla'"),
    ),
    unsupported("rope_interleaved", rope_interleaved=True),
    unsupported("is_neox_style", is_neox_style=False),
    unsupported("rope_is_neox_style", rope_is_neox_style=False),
    unsupported("rope_scaling", "'yarn'", rope_scaling={"rope_type": "yarn", "factor": 4.0}),
    unsupported("rope_parameters.rope_type", "'yarn'", rope_parameters={"rope_theta": 1e4, "rope_type": "yarn"}),
    unsupported("is_causal", is_causal=True),
    unsupported("use_sliding_window", use_sliding_window=True),
    unsupported("layer_types", "'sliding_attention'", layer_types=["full_attention"] * 2 + ["sliding_attention"]),
    unsupported("hidden_act", "'gelu'", hidden_act="gelu"),
    Case(
        "D60 no theta",
        config(rope_parameters=ABSENT),
        (("config-missing", "rope_theta"),),
        ("rope_theta", "rope_parameters.rope_theta"),
    ),
    Case(
        "D60 two that disagree",
        config(rope_theta=5e6),
        (("config-disagrees", "rope_theta"),),
        ("rope_parameters.rope_theta", "10000.0", "5000000.0"),
    ),
    Case(
        "D60 a container that is none",
        config(rope_parameters=[ROPE]),
        (("config-missing", "rope_theta"),),
        ("rope_parameters",),
        warnings=(("config-unread", "rope_parameters"),),
    ),
    Case(
        "mask in two places that disagree",
        config(dflash_config={"mask_token_id": 506}),
        (("config-disagrees", "mask_token_id"),),
        ("506", "507", "dflash_config.mask_token_id"),
    ),
    Case(
        "anchor in two places that disagree",
        config(sample_from_anchor=True, dspark_bonus_anchor=True),
        (("config-disagrees", "sample_from_anchor"),),
        ("dspark_bonus_anchor", "sample_from_anchor"),
    ),
    heads(4, 3, "num_key_value_heads", WIDE),
    heads(4, 8, "num_key_value_heads", WIDE),
    heads(4, 0, "num_key_value_heads"),
    heads(0, 2, "num_attention_heads"),
    value("head_dim", 0, "2 to 4096"),
    value("attention_bias", True, "no attention biases"),
    Case(
        "several at once",
        both(
            config(mask_token_id=ABSENT, block_size=0, hidden_act="gelu", target_layer_ids=[0, 1], some_new_field=3),
            tensors(lambda t: t.pop("norm.weight"), put("extra.weight", "BF16", 4)),
        ),
        (
            ("config-missing", "mask_token_id"),
            ("config-value", "config.json: block_size"),
            ("config-unsupported", "hidden_act"),
            ("tensor-shape", "fc.weight"),
            ("tensor-missing", "norm.weight"),
            ("tensor-unknown", "extra.weight"),
        ),
        ("6 problems",),
        warnings=(("config-unread", "some_new_field"),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refused(case: Case, pair: Pair, convert: Convert) -> None:
    check_refused(case, pair, convert)


def planned(pair: Pair, convert: Convert, *args: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Metadata and warnings of a dry run that finds no error."""
    ended = convert(pair.draft, "--target-model-dir", pair.target, "--dry-run", "--json", *args)
    assert ended.code == 0, ended.told
    assert ended.findings("error") == []
    return ended.document["plan"]["metadata"], ended.findings("warning")


def test_partial_dflash_config_falls_back_key_by_key(pair: Pair, convert: Convert) -> None:
    pair.config({"dflash_config": {"target_layer_ids": [0, 1, 2]}})
    metadata, warnings = planned(pair, convert)
    assert metadata["tokenizer.ggml.mask_token_id"] == 507
    assert metadata["dflash.target_layers"] == [1, 2, 3]
    assert warnings == []


def test_everything_nested(pair: Pair, convert: Convert) -> None:
    nested = {"block_size": 7, "mask_token_id": 507, "target_layer_ids": [0, 1, 2], "markov_rank": 16}
    pair.config({**dict.fromkeys(nested, ABSENT), "dflash_config": nested})
    metadata, warnings = planned(pair, convert)
    assert metadata["dflash.block_size"] == 7
    assert metadata["tokenizer.ggml.mask_token_id"] == 507
    assert warnings == []


def test_theta_is_read_from_both_places(pair: Pair, convert: Convert) -> None:
    pair.config({"rope_parameters": {"rope_theta": 5e6, "rope_type": "default"}})
    assert planned(pair, convert)[0]["dflash.rope.freq_base"] == 5e6
    pair.config({"rope_parameters": ABSENT, "rope_theta": 1000000})
    assert planned(pair, convert)[0]["dflash.rope.freq_base"] == 1e6


def test_unknown_field_is_a_warning_and_with_strict_an_error(pair: Pair, convert: Convert) -> None:
    pair.config({"frobnication": {"a": 1}, "dflash_config": {"new_rule": True}})
    _, warnings = planned(pair, convert)
    assert warnings == [("config-unread", "frobnication"), ("config-unread", "dflash_config.new_rule")]
    ended = convert(pair.draft, "--target-model-dir", pair.target, "--strict", "--json")
    assert ended.code == 3
    assert "2 problems" in ended.told
    assert ended.findings("warning") == warnings


def test_what_a_target_leaves_in_the_config_is_no_warning(pair: Pair, convert: Convert) -> None:
    pair.config(
        {
            "partial_rotary_factor": 0.25,
            "full_attention_interval": 4,
            "attn_output_gate": True,
            "pad_token_id": None,
            "rope_parameters": {
                "rope_theta": 1e4,
                "rope_type": "default",
                "partial_rotary_factor": 0.25,
                "mrope_section": [11, 11, 10],
                "mrope_interleaved": True,
            },
        }
    )
    metadata, warnings = planned(pair, convert, "--strict")
    assert warnings == []
    # the draft was trained with the whole head rotated, whatever its target does
    assert "dflash.rope.dimension_count" not in metadata


@pytest.mark.parametrize("key", ["pad_token_id", "eos_token_id", "bos_token_id"])
def test_mask_that_is_another_special_token_is_a_warning(key: str, pair: Pair, convert: Convert) -> None:
    pair.config({key: [498, 507] if key == "eos_token_id" else 507})
    assert planned(pair, convert)[1] == [("mask-is-special", "mask_token_id")]


def test_command_line_wins_over_the_config(pair: Pair, convert: Convert) -> None:
    pair.config({"mask_token_id": "507"})
    metadata, _ = planned(pair, convert, "--mask-token-id", "500", "--no-sample-from-anchor")
    assert metadata["tokenizer.ggml.mask_token_id"] == metadata["dspark.mask_token_id"] == 500
    assert metadata["dflash.sample_from_anchor"] is metadata["dspark.sample_from_anchor"] is False


def test_command_line_is_checked_like_the_config(pair: Pair, convert: Convert) -> None:
    case = Case("", lambda _: None, (("config-value", "the command line"),), ("512",), ("--mask-token-id", "512"))
    check_refused(case, pair, convert)


def test_bonus_anchor_is_the_opposite_of_sampling_from_the_anchor(pair: Pair, convert: Convert) -> None:
    pair.config({"dspark_bonus_anchor": True})
    assert planned(pair, convert)[0]["dflash.sample_from_anchor"] is False
