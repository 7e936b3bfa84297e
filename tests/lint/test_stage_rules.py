"""Each rule over DeepSeek-V4 stages: a good file broken on purpose, and exactly that rule fires."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.findings import Finding
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.lint import lint
from tests.draft_file import ARRAY, F32, U32, DraftFile
from tests.lint.breaking import Change
from tests.lint.stage_cases import STAGE_CASES
from tests.stage_file import StageFile

#: what cannot be broken without breaking another thing too
BESIDES = {
    "expert-counts": {"tensor-shape"},
    "lora-rank": {"tensor-shape"},
    "output-groups": {"tensor-shape"},
    "hyper-connections": {"tensor-shape"},
    "swiglu-clamp": set(),
    "broken-block": {"tensor-shape", "truncated"},
}


def findings(file: DraftFile, path: Path) -> tuple[Finding, ...]:
    with open_gguf(file.write(path)) as gguf:
        return lint(gguf, read_draft(gguf), deep=True)


def test_a_good_file_has_no_finding(tmp_path: Path) -> None:
    assert findings(StageFile(), tmp_path / "dspark-v4.gguf") == ()


@pytest.mark.parametrize(("rule", "severity", "change"), STAGE_CASES)
def test_exactly_that_rule_fires(tmp_path: Path, rule: str, severity: str, change: Change) -> None:
    file = StageFile()
    change(file)
    found = findings(file, tmp_path / "dspark-v4.gguf")
    besides = BESIDES.get(rule, set())
    assert {(one.rule, one.severity) for one in found if one.rule not in besides} == {(rule, severity)}, found
    assert all(one.message.endswith(".") and one.where for one in found)


@pytest.mark.parametrize(
    "value", [(F32, 10.0, None), (ARRAY, [10.0] * 3, F32), None], ids=["scalar", "list", "as the experts"]
)
def test_spellings_of_the_shared_expert_s_limit(tmp_path: Path, value: tuple[int, object, int | None] | None) -> None:
    file = StageFile()
    del file.kv["dflash.swiglu_clamp_shexp"]
    if value:
        file.kv["dflash.swiglu_clamp_shexp"] = value
    assert findings(file, tmp_path / "dspark-v4.gguf") == ()


def test_what_may_be_left_out(tmp_path: Path) -> None:
    file = StageFile()
    del file.kv["dflash.attention.compress_ratios"]
    file.kv["dflash.expert_feed_forward_length"] = (ARRAY, [32] * 3, U32)
    file.kv["dflash.expert_used_count"] = (ARRAY, [2] * 3, U32)
    assert findings(file, tmp_path / "dspark-v4.gguf") == ()


def test_the_grouped_projection_may_stand_in_three_dimensions(tmp_path: Path) -> None:
    file = StageFile()
    for layer in range(3):
        file.tensors[f"blk.{layer}.attn_output_a.weight"] = ("Q8_0", (64, 32, 2))
    assert findings(file, tmp_path / "dspark-v4.gguf") == ()


def test_which_expert_is_lost(tmp_path: Path) -> None:
    file = StageFile()
    size = 64 * 32 // 32 * 17
    file.data["blk.1.ffn_up_exps.weight"] = b"\x70" * (2 * size) + bytes(2 * size)
    (finding,) = findings(file, tmp_path / "dspark-v4.gguf")
    assert finding.message == "2 of its 4 matrices are all zero, the first is number 2."
