"""Windows, causality, rotation and vocabulary of layers like Qwen3's: what a config says is what the file says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from dspark_convert.plan import plan_for_directory
from dspark_convert.reference.facts import read_facts
from fixtures.families import make
from tests.checkpoints import ABSENT, Pair, Tensor
from tests.conftest import Convert
from tests.oracle import read
from tests.refusals.case import put, without
from tests.specs.test_normalise import planned

CAUSAL = {"dflash.attention.causal": True}
THETA = {"rope_theta": 1e4}
FULL, WINDOWED = "full_attention", "sliding_attention"

#: keys that a plain draft has none of
OPTIONAL = ("dflash.attention.", "dflash.rope.", "dflash.embedding_scale", "dflash.logit_scale", "dflash.final_logit")


def windows(length: int, *pattern: bool) -> dict[str, Any]:
    return {
        "dflash.attention.sliding_window": length,
        "dflash.attention.sliding_window_pattern": list(pattern),
    }


def scaled(kind: str, factor: float, **more: Any) -> dict[str, Any]:
    keys = {"type": kind, "factor": factor} | more
    return {f"dflash.rope.scaling.{key}": value for key, value in keys.items()}


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"is_causal": True}, CAUSAL),
        ({"dflash_config": {"causal": True}}, CAUSAL),
        ({"dflash_config": {"is_causal": True}}, CAUSAL),
        ({"dflash_query_causal": True}, CAUSAL),
        ({"is_causal": False, "dflash_config": {"causal": False}}, {}),
        (
            {
                "layer_types": [FULL, WINDOWED, FULL],
                "sliding_window": 12,
                "sliding_window_non_causal": True,
                "use_sliding_window": ABSENT,
            },
            windows(12, False, True, False),
        ),
        (
            {"layer_types": [WINDOWED] * 3, "sliding_window": 12, "use_sliding_window": True, "is_causal": False},
            windows(12, True, True, True),
        ),
        # as transformers' Qwen3: without a list the later layers are windowed
        (
            {"layer_types": ABSENT, "max_window_layers": 0, "sliding_window": 9, "use_sliding_window": True},
            windows(9, True, True, True) | CAUSAL,
        ),
        (
            {"dflash_config": {"swa_window_size": 12, "use_swa": True}, "use_sliding_window": ABSENT},
            windows(12, True, True, True),
        ),
        # windowed layers see the block from one side, unless something says otherwise
        (
            {"layer_types": [WINDOWED] * 3, "sliding_window": 12, "use_sliding_window": True},
            windows(12, True, True, True) | CAUSAL,
        ),
        ({"rope_parameters": {**THETA, "rope_type": "linear", "factor": 8.0}}, scaled("linear", 8.0)),
        (
            {"rope_parameters": {**THETA, "rope_type": "yarn", "factor": 4.0}},
            scaled("yarn", 4.0, original_context_length=1024),
        ),
        (
            {"rope_parameters": ABSENT, **THETA, "rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 16}},
            scaled("yarn", 2.0, original_context_length=1024, yarn_beta_fast=16.0),
        ),
        (
            {
                "rope_parameters": {
                    **THETA,
                    "attention_factor": 1.25,
                    "beta_slow": 2,
                    "factor": 16.0,
                    "original_max_position_embeddings": 64,
                    "type": "yarn",
                }
            },
            # llama.cpp multiplies by 1 + 0.1 ln factor itself
            scaled("yarn", 16.0, original_context_length=64, yarn_attn_factor=1.25, yarn_beta_slow=2.0)
            | {"dflash.rope.scaling.attn_factor": pytest.approx(1.25 / (1 + 0.1 * math.log(16)), rel=1e-6)},
        ),
        (
            {"rope_parameters": {"full_attention": {**THETA, "factor": 4, "rope_type": "yarn", "attention_factor": 1}}},
            scaled("yarn", 4.0, original_context_length=1024, yarn_attn_factor=1.0)
            | {"dflash.rope.scaling.attn_factor": pytest.approx(1 / (1 + 0.1 * math.log(4)), rel=1e-6)},
        ),
        (
            {
                "rope_parameters": {**THETA, "factor": 4, "rope_type": "yarn"}
                | {"mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 256}
            },
            scaled("yarn", 4.0, original_context_length=256, yarn_attn_factor=1.0)
            | {"dflash.rope.scaling.attn_factor": pytest.approx(1 / (1 + 0.1 * math.log(4)), rel=1e-6)},
        ),
        ({"attention_value_scale": 0.5}, {"dflash.attention.value_scale": 0.5}),
        ({"dflash_config": {"input_embedding_scale": 2}}, {"dflash.embedding_scale": 2.0}),
    ],
    ids=str,
)
def test_keys(config: dict[str, Any], keys: dict[str, Any], pair: Pair, convert: Convert) -> None:
    plain, _ = planned(pair, convert)
    pair.config(config)
    metadata, warnings = planned(pair, convert)
    assert warnings == [("yarn-unread", f"rope_{key.rpartition('yarn_')[2]}") for key in keys if "yarn_beta" in key]
    more = {k: v for k, v in metadata.items() if k not in plain}
    assert more == keys
    assert all(key.startswith(OPTIONAL) for key in more)
    assert {key: metadata[key] for key in plain} == plain


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"dflash_config": {"output_multiplier": 0.25}}, {"dflash.logit_scale": 0.25}),
        ({"dflash_config": {"final_logit_softcapping": 30.0}}, {"dflash.final_logit_softcapping": 30.0}),
    ],
    ids=str,
)
def test_keys_of_the_logits(config: dict[str, Any], keys: dict[str, Any], pair: Pair, convert: Convert) -> None:
    plain, _ = planned(pair, convert)
    pair.config(config)
    metadata, _ = planned(pair, convert)
    assert metadata == plain | keys


#: what a config of Muse Glimmer's says of the target's own tables
OF_THE_TARGET = {"final_logit_softcapping": 20.0, "input_embedding_scale": 4.0, "output_multiplier": 0.25}


def test_scales_of_the_target_are_not_the_draft_s(pair: Pair, convert: Convert) -> None:
    """DeepSpec copies its target's config, whose keys Qwen3's layers do not obey."""
    plain, _ = planned(pair, convert)
    pair.config(OF_THE_TARGET)
    assert planned(pair, convert) == (plain, [("config-unread", key) for key in OF_THE_TARGET])


def test_scales_at_the_top_are_those_of_z_lab_s_class(tmp_path: Path) -> None:
    config = make("zlab_dflash", tmp_path) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | OF_THE_TARGET))
    draft = plan_for_directory(tmp_path).draft
    assert draft is not None
    assert (draft.embedding_scale, draft.logit_scale, draft.logit_softcap) == (4.0, 0.25, 20.0)


def test_a_window_for_layers_from_the_28th_on_is_that_of_none(pair: Pair, convert: Convert) -> None:
    plain, _ = planned(pair, convert)
    pair.config({"layer_types": ABSENT, "sliding_window": 9, "use_sliding_window": True})
    assert planned(pair, convert) == (plain, [("window-without-layers", "sliding_window")])


def test_windows_that_are_switched_off_are_none_as_in_transformers(pair: Pair, convert: Convert) -> None:
    plain, _ = planned(pair, convert)
    pair.config({"layer_types": [WINDOWED] * 3, "sliding_window": 12, "use_sliding_window": False})
    assert planned(pair, convert) == (plain, [("window-without-layers", "use_sliding_window")])
    assert not any(view.window or view.causal for view in read_facts(pair.draft).views)


def test_layers_that_differ_in_causality_are_told(pair: Pair, convert: Convert) -> None:
    pair.config({"layer_types": [WINDOWED, FULL, WINDOWED], "sliding_window": 12, "use_sliding_window": True})
    metadata, warnings = planned(pair, convert)
    assert warnings == [("causal-mixed", "attention.causal")]
    assert metadata["dflash.attention.causal"] is True  # of most layers
    assert metadata["dspark.causal_pattern"] == [True, False, True]


@pytest.mark.parametrize(
    "flag", [{"rope_interleaved": True}, {"is_neox_style": False}, {"rope_is_neox_style": False}], ids=str
)
@pytest.mark.parametrize("outtype", ["f32", "bf16"])
def test_neighbouring_pairs_are_put_in_order(flag: dict[str, bool], outtype: str, pair: Pair, convert: Convert) -> None:
    plain, _ = planned(pair, convert)
    pair.config(flag)
    assert planned(pair, convert) == (plain, [])
    ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", "out.gguf", "--outtype", outtype)
    assert ended.code == 0, ended.told
    written = read(Path("out.gguf")).tensors
    for name, tensor in load_file(pair.shard).items():
        layer, _, kind = name.partition(".self_attn.")
        if not kind.startswith(("q_", "k_")):
            continue
        values = tensor.float().numpy()
        # The pair (2i, 2i + 1) of a head of 32 is (i, i + 16) afterwards.
        order = [row // 32 * 32 + 2 * (row % 32 % 16) + row % 32 // 16 for row in range(len(values))]
        which, number = f"attn_{kind.removesuffix('.weight').removesuffix('_proj')}", layer.removeprefix("layers.")
        stored, _, data = written[f"blk.{number}.{which}.weight"]
        values = values[order].astype(np.float32)
        wanted = values if stored == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16)
        assert data == wanted.tobytes(), name


def reduced(pair: Pair, ids: list[int]) -> None:
    """A draft of the tokens ``ids`` alone."""
    offsets = np.array(ids, dtype=np.int64) - np.arange(len(ids))
    pair.config({"draft_vocab_size": len(ids)})
    pair.tensors(
        lambda tensors: tensors.update(
            {
                name: Tensor("BF16", (len(ids), columns), tensors[name].data[: 2 * columns * len(ids)])
                for name, columns in (("lm_head.weight", 128), ("markov_head.markov_w2.weight", 16))
            }
        )
    )
    pair.tensors(lambda tensors: tensors.update({"d2t": Tensor("I64", (len(ids),), offsets.tobytes())}))
    pair.tensors(put("t2d", "I8", 512))


@pytest.mark.parametrize("declared", [True, False])
def test_a_reduced_vocabulary_has_its_head_and_the_targets_ids(declared: bool, pair: Pair, convert: Convert) -> None:
    ids = [7, 8, 11, 100, 511, 200]
    reduced(pair, ids)
    if not declared:
        pair.config({"draft_vocab_size": ABSENT})
    ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", "out.gguf", "--json")
    assert ended.code == 0, ended.told
    written = read(Path("out.gguf")).tensors
    assert written["d2t"] == ("I64", (6,), np.array(ids, dtype=np.int64).tobytes())
    assert written["output.weight"][:2] == ("BF16", (128, 6))
    assert written["markov_w2.weight"][:2] == ("BF16", (16, 6))
    assert written["markov_w1.weight"][:2] == ("BF16", (16, 512))
    assert "token_embd.weight" not in written


def test_a_table_that_may_hold_ids_is_told(pair: Pair, convert: Convert) -> None:
    # every second token, as offsets 0, 1, 2 and so on, or every token from 0 on
    reduced(pair, [2 * i for i in range(20)])
    assert ("d2t-absolute", "d2t") in planned(pair, convert)[1]


def test_a_reduced_head_cannot_be_borrowed(pair: Pair, convert: Convert) -> None:
    reduced(pair, [7, 8, 11])
    pair.tensors(without("lm_head.weight"))
    ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", "out.gguf", "--json")
    assert ended.findings("error") == [("tensor-missing", "lm_head.weight")]


def test_an_export_of_specforge_under_deepspecs_class_is_no_stranger(pair: Pair, convert: Convert) -> None:
    """As SpecForge's ``normalize_dflash_export.py`` leaves it."""
    plain, _ = planned(pair, convert)
    nested = {
        "attention_mode": "gqa",
        "confidence_head_alpha": 1.0,
        "confidence_head_with_markov": True,
        "enable_confidence_head": True,
        "markov_head_type": "vanilla",
        "markov_rank": 16,
        "mask_token_id": 507,
        "projector_type": "dspark",
        "target_layer_ids": [0, 1, 2],
    }
    pair.config({"dflash_config": nested, "target_hidden_size": None, "num_anchors": 512})
    assert planned(pair, convert, "--strict") == (plain, [])
