"""Rotation of a draft by fields alone."""

from __future__ import annotations

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
    assert [(f.severity, f.where) for f in judge(bare)] == [("error", "rope_factor")]
    assert judge({**bare, "rope_factor": 2.0}) == []
    with pytest.raises(KeyError):
        rope("neox", bare)


def test_others_need_none() -> None:
    assert judge(PLAIN) == judge({}) == []
