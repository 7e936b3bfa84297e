"""This project's own checks: golden plans of the published drafts, and the fixture run in llama.cpp."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tests import stage_layout
from tests.check.own_checks import CHECKS, lay_out
from tests.check.places import run_checks


def test_the_golden_plans_of_all_families(tmp_path: Path) -> None:
    file, names = lay_out(tmp_path)
    ended = run_checks(file, "--json", "--jobs", "2")
    told = {check["name"]: check["steps"][0]["reasons"] for check in ended.document["checks"]}
    assert set(told) == names
    assert not any(told.values()), told
    assert (ended.code, len(ended.document["checks"])) == (0, 2 * len(names))


def test_the_fixture_is_checked_with_all_steps() -> None:
    ended = run_checks(CHECKS / "fixture.toml", "--json")
    assert ended.code == 0, ended.out
    assert {step["name"]: step["status"] for check in ended.document["checks"] for step in check["steps"]} == {
        "plan": "pass",
        "convert": "pass",
        "inspect": "pass",
        "validate": "pass",
    }


def test_no_golden_plan_lies_there_unused() -> None:
    files = [tomllib.loads(path.read_text("utf-8")) for path in CHECKS.glob("*.toml")]
    named = {
        check["expect"]["plan"].replace("{outtype}", outtype)
        for file in files
        for check in file["check"]
        for outtype in check["outtypes"]
    }
    assert named == {f"plans/{path.name}" for path in (CHECKS / "plans").iterdir()}


def test_golden_plans_agree_with_what_llama_cpp_makes() -> None:
    """The fixture states types and shapes of llama.cpp's own converter."""
    plan = json.loads((CHECKS / "plans" / "deepseek_v4_flash_dspark-auto.json").read_text("utf-8"))
    fact = stage_layout.facts("deepseek_v4_flash_dspark")
    theirs = dict(stage_layout.each(fact["gguf_tensors"], fact["stages"], fact["experts"]))
    ours = {tensor["name"]: [tensor["type"], tensor["shape"]] for tensor in plan["tensors"]}
    assert ours == {name: list(entry) for name, entry in theirs.items()}
