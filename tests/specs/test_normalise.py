"""Config fields that are read: every spelling of each, what wins, and what is worth a warning."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checkpoints import ABSENT, Pair
from tests.conftest import Convert
from tests.refusals.case import Case, check_refused


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
    case = Case("", lambda _: None, (("config-value", "--mask-token-id"),), ("512",), ("--mask-token-id", "512"))
    check_refused(case, pair, convert)


@pytest.mark.parametrize(
    "change", [{"dspark_bonus_anchor": True}, {"dflash_config": {"dspark_bonus_anchor": True}}], ids=str
)
def test_bonus_anchor_is_the_opposite_of_sampling_from_the_anchor(
    change: dict[str, object], pair: Pair, convert: Convert
) -> None:
    pair.config(change)
    assert planned(pair, convert)[0]["dflash.sample_from_anchor"] is False


def test_what_is_read_two_levels_down_is_not_called_unread(pair: Pair, convert: Convert) -> None:
    rope = {"rope_theta": 1e4, "rope_type": "default"}
    pair.config({"rope_parameters": {"full_attention": rope}})
    assert planned(pair, convert)[1] == []
    pair.config({"rope_parameters": {"full_attention": {**rope, "llama_3": 4.0}}})
    assert planned(pair, convert)[1] == [("config-unread", "rope_parameters.full_attention.llama_3")]


def test_taps_that_no_target_has(pair: Pair, convert: Convert) -> None:
    pair.config({"target_layer_ids": [0, 1, 512], "num_target_layers": ABSENT})
    ended = convert(pair.draft, "--target-model-dir", pair.target, "--dry-run")
    assert ended.code == 3
    assert "target_layers holds 513, but llama.cpp takes no target of more than 512 layers" in ended.err
