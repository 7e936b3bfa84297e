"""Rotation of a draft by fields alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dspark_convert.draft import Rope
from dspark_convert.specs.rotation import judge, rope

PLAIN: dict[str, Any] = {"head_dim": 64, "rope_theta": 5_000_000, "rope_type": "default"}
YARN: dict[str, Any] = {**PLAIN, "rope_type": "yarn", "rope_factor": 16, "rope_original_context": 4096}


@pytest.mark.parametrize(
    ("style", "values", "wanted"),
    [
        ("neox", PLAIN, Rope("neox", 64, 5e6)),
        ("norm", PLAIN, Rope("norm", 64, 5e6)),
        ("neox", {**PLAIN, "rope_dimensions": 32}, Rope("neox", 32, 5e6)),
        ("neox", {**PLAIN, "rope_factor": 4.0}, Rope("neox", 64, 5e6)),
        (
            "neox",
            {**PLAIN, "rope_type": "linear", "rope_factor": 4},
            Rope("neox", 64, 5e6, {"type": "linear", "factor": 4.0}),
        ),
        (
            "neox",
            YARN,
            Rope("neox", 64, 5e6, {"type": "yarn", "factor": 16.0, "original_context_length": 4096}),
        ),
        (
            "neox",
            {**YARN, "rope_attention_factor": 1, "rope_beta_fast": 16, "rope_beta_slow": 2},
            Rope(
                "neox",
                64,
                5e6,
                {
                    "type": "yarn",
                    "factor": 16.0,
                    "original_context_length": 4096,
                    "attention_factor": 1.0,
                    "beta_fast": 16.0,
                    "beta_slow": 2.0,
                },
            ),
        ),
        (
            "neox",
            {**PLAIN, "rope_type": "proportional", "rope_rotated": 16},
            Rope("neox", 64, 5e6, {"type": "proportional", "rotated": 16}),
        ),
    ],
)
def test_rope(style: str, values: dict[str, Any], wanted: Rope) -> None:
    assert rope(style, values) == wanted


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_a_scaled_rotation_needs_its_factor(kind: str) -> None:
    bare = {**PLAIN, "rope_type": kind, "rope_original_context": 4096}
    stated = {"rope_type": "config.json: rope_scaling.type", "rope_factor": "config.json: rope_scaling.factor"}
    assert [(f.severity, f.where) for f in judge(bare, stated)] == [("error", "rope_factor")]
    assert judge({**bare, "rope_factor": 2.0}, stated) == []
    with pytest.raises(KeyError):
        rope("neox", bare)


def test_others_need_none() -> None:
    assert judge(PLAIN, {}) == judge({}, {}) == []


def test_a_factor_needs_its_kind() -> None:
    silent = {"rope_type": "default ('default')", "rope_factor": "config.json: rope_scaling.factor"}
    told = judge({**PLAIN, "rope_factor": 4.0}, silent)
    assert [(f.severity, f.where) for f in told] == [("error", "rope_type")]
    assert judge({**PLAIN, "rope_factor": 1.0}, silent) == []
    # transformers' "default" leaves a factor unread
    assert judge({**PLAIN, "rope_factor": 4.0}, silent | {"rope_type": "config.json: rope_scaling.type"}) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"rope_beta_fast": 32, "rope_beta_slow": 1.0, "rope_truncate": True}, ()),
        ({"rope_beta_fast": 64}, ("YaRN's beta_fast is 64", "it takes 32")),
        ({"rope_beta_slow": 0.5}, ("YaRN's beta_slow is 0.5", "it takes 1")),
        ({"rope_truncate": False}, ("YaRN's truncate is false", "it takes true")),
    ],
)
def test_a_ramp_that_llama_cpp_does_not_read_is_told(more: dict[str, Any], said: tuple[str, ...]) -> None:
    told = judge({**YARN, **more}, {})
    assert [f.rule for f in told] == ["yarn-unread"] * bool(said)
    assert all(word in told[0].message for word in said)
    assert judge({**PLAIN, **more}, {}) == []  # not scaled at all


@pytest.mark.parametrize(
    ("more", "length"),
    [
        ({"rope_mscale": 1.0, "rope_mscale_all": 1.0}, 1.0),
        ({"rope_mscale": 0.707, "rope_mscale_all": 1.0}, (0.0707 * math.log(16) + 1) / (0.1 * math.log(16) + 1)),
        ({"rope_mscale": 0.707, "rope_mscale_all": 1.0, "rope_attention_factor": 1.25}, 1.25),
        ({"rope_mscale": 0.707}, None),
        ({"rope_mscale": 0.707, "rope_mscale_all": 0}, None),
    ],
)
def test_lengths_of_yarn(more: dict[str, Any], length: float | None) -> None:
    """By transformers' ``_compute_yarn_parameters``: the pair counts, and a stated factor before it."""
    scaling = rope("neox", {**YARN, **more}).scaling
    assert scaling is not None
    assert scaling.get("attention_factor") == (None if length is None else pytest.approx(length, rel=1e-12))
