"""Findings of a port that no sound file provokes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dspark_convert.options import Options
from dspark_convert.port.check import read_back
from dspark_convert.port.planning import plan_for_gguf
from tests.draft_file import DraftFile


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
