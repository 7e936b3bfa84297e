"""Sizes of DeepSeek-V4 targets over which llama.cpp dies (seen by running it: tests/runtime/test_stage_precheck.py)."""

from __future__ import annotations

from typing import Any

import pytest

from dspark_convert.target_limits import judge_limits

SOUND = {
    "deepseek4.attention.key_length": 512,
    "deepseek4.attention.indexer.key_length": 128,
    "deepseek4.attention.compress_ratios": [0, 4, 128],
}


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({}, []),
        ({"attention.indexer.key_length": 512}, ["target-indexer"]),
        ({"attention.indexer.key_length": 96}, ["target-indexer"]),
        ({"attention.compress_ratios": [0, 128]}, ["target-compression"]),
        ({"attention.compress_ratios": "0, 128"}, []),  # no list: a stranger's file
    ],
)
def test_each_limit(change: dict[str, Any], rules: list[str]) -> None:
    metadata = SOUND | {f"deepseek4.{key}": value for key, value in change.items()}
    assert [finding.rule for finding in judge_limits("deepseek4", metadata)] == rules
    assert list(judge_limits("qwen3", metadata)) == []
