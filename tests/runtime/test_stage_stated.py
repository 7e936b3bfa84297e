"""Every key of a DeepSeek-V4 draft against the checkpoint's facts: one wrong key, one sentence that names it."""

from __future__ import annotations

from typing import Any

import pytest

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.reference.facts import read_facts
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.stated import check_stated
from dspark_convert.runtime.stated_stages import STAGE_KEYS, stage_rows
from tests.oracle import Expected
from tests.runtime.stage_pairs import StagePair, make_stage_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> StagePair:
    return make_stage_pair(tmp_path_factory.mktemp("stages"))


def check(pair: StagePair, **kv: Any) -> Check:
    """The check of a file whose keys (dots as __) are set to (type, value), or removed by None."""

    def change(want: Expected) -> None:
        for name, value in kv.items():
            key = name.replace("__", ".")
            if value is None:
                del want.kv[key]
            else:
                want.kv[key] = value

    with open_gguf(pair.written("stated", change)) as ours:
        return check_stated(ours, read_facts(pair.directory))


def test_right_file(pair: StagePair) -> None:
    found = check(pair)
    assert (found.status, found.detail.endswith("experts, window and hyper-connections are the checkpoint's")) == (
        "pass",
        True,
    ), found


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("block_size", ("UINT32", 6), "is 6, but the checkpoint has 5"),
        ("target_layers", ("ARRAY[INT32]", [1, 2, 3]), "is [1, 2, 3], but the checkpoint has [2, 3, 4]"),
        ("sample_from_anchor", ("BOOL", False), "is false, but the checkpoint has true"),
        ("has_confidence_head", ("BOOL", False), "is false, but the checkpoint has true"),
        ("block_count", ("UINT32", 2), "is 2, but the checkpoint has 3"),
        ("context_length", ("UINT32", 5), "is 5"),
        ("attention.head_count_kv", ("UINT32", 8), "is 8, but the checkpoint has 1"),
        ("attention.head_count_kv", None, "is 8, but the checkpoint has 1"),
        ("attention.key_length", ("UINT32", 16), "is 16"),
        ("attention.value_length", ("UINT32", 16), "is 16"),
        ("attention.layer_norm_rms_epsilon", ("FLOAT32", 1.0001e-6), "is 1.0001"),
        ("attention.causal", ("BOOL", True), "is true"),
        ("attention.q_lora_rank", ("UINT32", 128), "is 128, but the checkpoint has 160"),
        ("attention.sliding_window", ("UINT32", 128), "is 128, but the checkpoint has 8"),
        ("attention.output_group_count", ("UINT32", 4), "is 4, but the checkpoint has 2"),
        ("attention.output_lora_rank", ("UINT32", 40), "is 40, but the checkpoint has 80"),
        ("attention.compress_ratios", ("ARRAY[INT32]", [0, 0, 4]), "is [0, 0, 4], but the checkpoint has 0"),
        ("rope.freq_base", ("FLOAT32", 160000.0), "is 160000, but the checkpoint has 10000"),
        ("rope.dimension_count", ("UINT32", 32), "is 32, but the checkpoint has 16"),
        ("rope.dimension_count", None, "is 32, but the checkpoint has 16"),
        ("rope.dimension_sections", ("ARRAY[INT32]", [16, 0, 0, 0]), "is [16, 0, 0, 0]"),
        ("expert_count", ("UINT32", 9), "is 9, but the checkpoint has 8"),
        ("expert_used_count", ("UINT32", 2), "is 2, but the checkpoint has 3"),
        ("expert_shared_count", ("UINT32", 2), "is 2, but the checkpoint has 1"),
        ("expert_gating_func", ("UINT32", 2), "is 2, but the checkpoint has 4"),
        ("expert_weights_norm", ("BOOL", False), "is false, but the checkpoint has true"),
        ("expert_weights_scale", ("FLOAT32", 2.5), "is 2.5, but the checkpoint has 1.5"),
        ("expert_feed_forward_length", ("UINT32", 32), "is 32, but the checkpoint has 64"),
        ("expert_group_count", ("UINT32", 2), "is 2, but the checkpoint has nothing of the kind"),
        ("swiglu_clamp_exp", ("ARRAY[FLOAT32]", [2.5, 2.5, 7.0]), "is [2.5, 2.5, 7.0], but the checkpoint has 2.5"),
        ("swiglu_clamp_exp", ("ARRAY[FLOAT32]", [2.5, 2.5]), "is [2.5, 2.5], but the checkpoint has 2.5"),
        ("swiglu_clamp_shexp", ("ARRAY[FLOAT32]", [10.0] * 3), "is 10, but the checkpoint has 2.5"),
        ("hyper_connection.count", ("UINT32", 3), "is 3, but the checkpoint has 4"),
        ("hyper_connection.sinkhorn_iterations", ("UINT32", 19), "is 19, but the checkpoint has 20"),
        ("hyper_connection.epsilon", ("FLOAT32", 1e-5), "is 9.99999975e-06, but the checkpoint has 9.99999997e-07"),
        ("attention.key_length_swa", ("UINT32", 32), "is 32, but the checkpoint has nothing of the kind"),
        ("feed_forward_length", ("UINT32", 32), "is 32, but the checkpoint has nothing of the kind"),
    ],
)
def test_one_wrong_key(pair: StagePair, key: str, value: Any, words: str) -> None:
    found = check(pair, **{f"dflash__{key.replace('.', '__')}": value})
    assert found.status == "fail"
    assert found.detail.startswith(f"dflash.{key} {words}"), found.detail
    assert ";" not in found.detail


@pytest.mark.parametrize("key", [row for row in sorted(STAGE_KEYS) if row not in (
    "attention.compress_ratios", "swiglu_clamp_shexp")])  # fmt: skip
def test_no_key_of_a_stage_may_be_missing(pair: StagePair, key: str) -> None:
    found = check(pair, **{f"dflash__{key.replace('.', '__')}": None})
    assert found.detail.startswith(f"dflash.{key} is absent, but the checkpoint has"), found


@pytest.mark.parametrize(
    "kv",
    [
        {"dflash__swiglu_clamp_exp": ("FLOAT32", 2.5), "dflash__swiglu_clamp_shexp": None},
        {"dflash__attention__compress_ratios": None},
        {"dflash__expert_used_count": ("ARRAY[INT32]", [3, 3, 3])},
        {"dflash__rope__scaling__type": ("STRING", "yarn"), "dflash__rope__scaling__factor": ("FLOAT32", 16.0)},
        {"dflash__attention__indexer__key_length": ("UINT32", 128), "dflash__hash_layer_count": ("UINT32", 0)},
        {"dflash__attention__compress_rope_freq_base": ("FLOAT32", 160000.0)},
        {"dspark__rope_style": ("STRING", "norm"), "dspark__markov_rank": ("UINT32", 32)},
        {"dflash__sample_from_anchor": None, "dflash__has_confidence_head": None},
    ],
    ids=lambda kv: min(kv),
)
def test_harmless_spellings(pair: StagePair, kv: dict[str, Any]) -> None:
    assert check(pair, **kv).status == "pass", check(pair, **kv)


def test_rotation_of_another_style(pair: StagePair) -> None:
    found = check(pair, dspark__rope_style=("STRING", "neox"))
    assert found.detail == "dspark.rope_style is neox, but what the checkpoint needs is norm"


def test_every_row_has_a_known_key(pair: StagePair) -> None:
    facts = read_facts(pair.directory)
    assert facts.stages is not None
    names = {name for name, _, _ in stage_rows(facts, facts.stages)}
    assert names - {"attention.sliding_window", "rope.dimension_count", "hidden_activation"} == STAGE_KEYS
