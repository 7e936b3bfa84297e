"""Findings of a port that no sound file provokes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dspark_convert.inspection import inspect_file
from dspark_convert.options import Options
from dspark_convert.port.check import read_back
from dspark_convert.port.planning import plan_for_gguf
from tests.draft_file import ARRAY, HIDDEN, U32, DraftFile
from tests.ggufio.layout_files import plain, prism


def test_values_of_a_type_that_is_not_read_are_not_made_anew(tmp_path: Path) -> None:
    file = DraftFile()
    rows, columns = file.tensors["fc.weight"][1]
    file.tensors["fc.weight"] = ("Q2_0", (rows, columns))
    file.data["fc.weight"] = bytes(rows * columns // 64 * 18)
    plan = plan_for_gguf(file.write(tmp_path / "dspark-x.gguf"), None, Options(outtype="q8_0"))
    assert [(finding.rule, finding.where) for finding in plan.errors] == [("type-unreadable", "fc.weight")]


def test_a_file_that_would_mean_something_else_is_not_written(tmp_path: Path) -> None:
    plan = plan_for_gguf(DraftFile().write(tmp_path / "dspark-x.gguf"))
    assert plan.draft is not None
    assert [finding for finding in read_back(plan) if finding.severity == "error"] == []
    changed = read_back(replace(plan, draft=replace(plan.draft, causal=True)))
    (finding,) = (finding for finding in changed if finding.severity == "error")
    assert (finding.rule, finding.where) == ("port-changes-meaning", "causal")


@pytest.mark.parametrize("tap", [512, 2**31 - 1, 2**32 - 1])
def test_taps_that_no_target_has_are_told_as_they_are(tmp_path: Path, tap: int) -> None:
    file = prism()
    file.kv["dspark.dspark.target_layers"] = (ARRAY, [0, 2, tap], U32)
    plan = plan_for_gguf(file.write(tmp_path / "dspark-x.gguf"))
    (finding,) = plan.errors
    assert (finding.rule, finding.where) == ("taps-absurd", "target_layers")
    assert f"holds {tap + 1}, but" in finding.message


def vector() -> DraftFile:
    file = DraftFile()
    file.tensors["blk.0.attn_norm.weight"] = ("BF16", (HIDDEN,))
    return file


def sinks() -> DraftFile:
    file = plain(sinks=True)
    for name in [name for name in file.tensors if "sinks" in name]:
        file.tensors[name.removesuffix(".weight")] = file.tensors.pop(name)
    return file


def type_of_file() -> DraftFile:
    file = DraftFile()
    file.kv["general.file_type"] = (U32, 2, None)
    return file


@pytest.mark.parametrize(
    ("rule", "make"), [("vector-type", vector), ("sinks-name", sinks), ("file-type", type_of_file)]
)
def test_what_a_port_puts_right_is_said_to_need_no_more(
    tmp_path: Path, rule: str, make: Callable[[], DraftFile]
) -> None:
    path = make().write(tmp_path / "dspark-x.gguf")
    fixes = {finding.rule: finding.fix for finding in inspect_file(path).findings}
    assert fixes[rule] == "rewrite the file: dspark-convert FILE"
    plan = plan_for_gguf(path)
    assert [finding for finding in plan.findings if finding.severity != "info"] == []
