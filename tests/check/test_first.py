"""dspark-check init: what it writes is a check that passes, and a change of the draft fails it."""

from __future__ import annotations

import json
import shutil
import time
import tomllib
from pathlib import Path

import pytest

from dspark_convert.check.first import first_checks
from tests import stage_layout
from tests.check.places import ROOT, run_checks, write
from tests.checkpoints import Pair
from tests.hub_place import REPO, HubPlace, repository_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "fixtures" / "pair", tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_first_file_passes_until_the_draft_changes(root: Path) -> None:
    (root / "ci").mkdir()
    ended = run_checks(
        "init", "draft", "--target", "target", "--outtype", "bf16", "--outtype", "q8_0", "-o", "ci/C.toml", cwd=root
    )
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        "ci/C.toml: 1 check of 40 tensors, 1,266,756 bytes; steps plan\nRun it with\n  dspark-check ci/C.toml\n"
    )
    (check,) = tomllib.loads((root / "ci" / "C.toml").read_text("utf-8"))["check"]
    assert check == {
        "name": "draft",
        "source": "../draft",
        "target": "../target",
        "outtypes": ["bf16", "q8_0"],
        "steps": ["plan"],
        "expect": {"block_size": 7, "taps": [1, 2, 3], "tensors": 40, "plan": "plans/draft-{outtype}.json"},
    }
    assert run_checks("ci/C.toml", cwd=root).code == 0
    Pair(root).config({"rope_theta": 9000.0, "rope_parameters": {"rope_theta": 9000.0, "rope_type": "default"}})
    ended = run_checks("ci/C.toml", cwd=root)
    assert ended.code == 1
    assert "dflash.rope.freq_base: 10000.0 (FLOAT32) -> 9000.0 (FLOAT32)" in ended.out


def test_with_a_target_to_run_it_is_run(root: Path) -> None:
    first = first_checks(root / "draft", root / "target.gguf", ["auto"], root / "C.toml", name="x")
    assert first.steps == ("plan", "convert", "inspect", "validate")
    (check,) = tomllib.loads(first.texts[root / "C.toml"])["check"]
    assert (check["target"], check["expect"]["max_size"]) == ("target.gguf", 1_266_756)


def test_warnings_of_today_are_expected(root: Path) -> None:
    Pair(root).config({"sliding_windw": 64})
    first = first_checks(root / "draft", None, ["auto"], root / "C.toml")
    (check,) = tomllib.loads(first.texts[root / "C.toml"])["check"]
    assert check["expect"]["warnings"] == ["config-unread"]


def test_nothing_is_replaced_unasked(root: Path) -> None:
    write(root / "plans" / "draft-auto.json", "mine")
    ended = run_checks("init", "draft", cwd=root)
    assert ended.code == 2
    assert "draft-auto.json is there already" in ended.err
    assert not (root / "CHECKS.toml").exists()
    assert run_checks("init", "draft", "--force", cwd=root).code == 0
    assert run_checks("init", "draft", cwd=root).code == 2
    ended = run_checks("init", "draft", "--outtype", "q9", "-o", "D.toml", cwd=root)
    assert (ended.code, "must be a list of some of auto" in ended.err) == (2, True)
    ended = run_checks("init", "draft", "--name", "a/b", "-o", "D.toml", cwd=root)
    assert (ended.code, "must be a name" in ended.err) == (2, True)


def test_a_draft_on_the_hub_has_the_same_plan(hub: HubPlace, root: Path) -> None:
    hub.server.files = repository_of(root / "draft")
    first = first_checks(Path(REPO), root / "target", ["auto"], root / "C.toml")
    local = first_checks(root / "draft", root / "target", ["auto"], root / "D.toml", name=REPO.split("/")[1])
    plan = root / "plans" / "Tiny-DSpark-auto.json"
    assert first.texts[plan] == local.texts[plan]
    check = tomllib.loads(first.texts[root / "C.toml"])["check"][0]
    assert (check["name"], check["source"], check["steps"]) == ("Tiny-DSpark", REPO, ["plan"])


def test_a_draft_in_a_folder_on_the_hub_is_named_by_both(hub: HubPlace, root: Path) -> None:
    hub.server.files = {f"dflash/{name}": data for name, data in repository_of(root / "draft").items()}
    first = first_checks(Path(f"{REPO}/dflash@v1"), root / "target", ["auto"], root / "C.toml")
    assert list(first.texts) == [root / "C.toml", root / "plans" / "Tiny-DSpark-dflash-auto.json"]
    (check,) = tomllib.loads(first.texts[root / "C.toml"])["check"]
    assert (check["name"], check["source"]) == ("Tiny-DSpark-dflash", f"{REPO}/dflash@v1")


def test_167_gb_take_seconds(tmp_path: Path) -> None:
    draft = stage_layout.lay_out(tmp_path / "DeepSeek-V4-Flash-DSpark", "deepseek_v4_flash_dspark")
    start = time.process_time()
    first = first_checks(draft, None, ["auto"], tmp_path / "C.toml")
    assert time.process_time() - start < 10
    assert (first.tensors, first.nbytes) == (81, 10_890_804_124)
    (plan,) = (text for path, text in first.texts.items() if path.suffix == ".json")
    assert len(plan) < 20_000
    experts = next(t for t in json.loads(plan)["tensors"] if t["name"] == "blk.0.ffn_up_exps.weight")
    assert experts["from"] == (
        "mtp.0.ffn.experts.{0-255}.w3.weight I8 [2048, 2048], fp4 with mtp.0.ffn.experts.{0-255}.w3.scale"
    )
