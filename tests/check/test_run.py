"""dspark-check on the fixture pair: every step passes, and each is seen to fail when something is wrong."""

from __future__ import annotations

import json
import math
import shutil
import struct
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dspark_convert.ggufio.reader import open_gguf
from fixtures.families import make_pair
from tests.check.places import ROOT, Ended, run_checks, write
from tests.checkpoints import Pair

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "check-1.json").read_text("utf-8"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "fixtures" / "pair", tmp_path, dirs_exist_ok=True)
    return tmp_path


def checks(root: Path, expect: str = "", **keys: Any) -> Path:
    keys = {"name": "a", "source": "draft", "target": "target"} | keys
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return write(root / "CHECKS.toml", "\n".join(["[[check]]", *lines, "[check.expect]", expect, ""]))


def steps(ended: Ended) -> dict[str, str]:
    jsonschema.validate(ended.document, SCHEMA, cls=jsonschema.Draft202012Validator)
    return {step["name"]: step["status"] for check in ended.document["checks"] for step in check["steps"]}


def reasons(ended: Ended) -> list[str]:
    assert ended.out, ended.err
    return [reason for check in ended.document["checks"] for step in check["steps"] for reason in step["reasons"]]


def test_a_table_for_each_outtype(root: Path) -> None:
    path = checks(root, steps=["plan", "convert"], outtypes=["bf16", "q8_0"])
    ended = run_checks(path)
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["check", "outtype", "plan", "convert", "time"]
    assert [line.split()[:4] for line in lines[1:3]] == [["a", "bf16", "ok", "ok"], ["a", "q8_0", "ok", "ok"]]
    assert lines[-1] == "2 checks: 2 passed"


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("block_size = 6", "block size is 7, expected is 6."),
        ("taps = [0, 1, 2]", "taps is [1, 2, 3], expected is [0, 1, 2]."),
        ("tensors = 41", "number of tensors is 40, expected is 41."),
        ("max_size = 1266755", "the tensors take 1,266,756 bytes, more than the 1,266,755 that are allowed."),
        (f'plan_sha256 = "{"0" * 64}"', "plan_sha256 is "),
    ],
)
def test_what_is_expected_of_a_plan(root: Path, expect: str, said: str) -> None:
    ended = run_checks(checks(root, expect), "--json")
    assert ended.code == 1
    assert steps(ended) == {"plan": "fail"}
    (reason,) = reasons(ended)
    assert reason.startswith(said)


def test_what_is_expected_of_a_file(root: Path) -> None:
    expect = "block_size = 7\ntaps = [1, 2, 3]\ntensors = 40\nmax_size = 1266756"
    assert run_checks(checks(root, expect, steps=["convert", "inspect"]), "--keep", root / "kept").code == 0
    (file,) = (root / "kept" / "a" / "auto").iterdir()
    ended = run_checks(checks(root, "taps = [0, 1, 2]", source=str(file.relative_to(root))), "--json")
    assert (ended.code, reasons(ended)) == (1, ["taps is [1, 2, 3], expected is [0, 1, 2]."])


def test_a_golden_plan_is_written_kept_to_and_told_as_a_diff(root: Path) -> None:
    path = checks(root, 'plan = "plans/a-{outtype}.json"')
    assert run_checks(path).code == 3
    assert "1 of them changed" in run_checks(path, "--write-plans").out
    assert run_checks(path).code == 0
    assert "0 of them changed" in run_checks(path, "--write-plans").out
    (root / "plans" / "a-auto.json").write_bytes(b"\xff")
    assert "1 of them changed" in run_checks(path, "--write-plans").out
    Pair(root).config({"target_layer_ids": [0, 1, 1]})
    ended = run_checks(path, "--json")
    assert ended.code == 1
    assert "a-auto.json: dflash.target_layers: [1, 2, 3] ([INT32]) -> [1, 2, 2] ([INT32])" in " ".join(reasons(ended))


def test_nvfp4_stays_or_follows_the_outtype(tmp_path: Path) -> None:
    make_pair("nemotron_inner", tmp_path)
    found = []
    for dequantize in (False, True):
        path = checks(tmp_path, steps=["plan", "convert"], outtypes=["f16"], dequantize=dequantize)
        ended = run_checks(path, "--keep", tmp_path / "kept", "--json")
        assert steps(ended) == {"plan": "pass", "convert": "pass"}, ended.err
        (kept,) = (tmp_path / "kept").rglob("*.gguf")
        with open_gguf(kept) as file:
            found.append({tensor.type_name for tensor in file.tensors})
    assert found == [{"F32", "F16", "NVFP4"}, {"F32", "F16"}]


def test_errors_and_unexpected_warnings_fail_and_the_rest_is_skipped(root: Path) -> None:
    Pair(root).config({"sliding_windw": 3})
    path = checks(root, steps=["plan", "convert", "inspect"])
    ended = run_checks(path, "--json")
    assert ended.code == 1
    assert steps(ended) == {"plan": "fail", "convert": "skip", "inspect": "skip"}
    assert "[config-unread]" in reasons(ended)[0]
    assert steps(run_checks(checks(root, 'warnings = ["config-unread"]'), "--json")) == {"plan": "pass"}


def test_values_are_looked_at_when_a_file_is_written(root: Path) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        held = tensors["fc.weight"]
        tensors["fc.weight"] = held._replace(data=b"\xc0\x7f" + held.data[2:])  # a NaN in BF16

    Pair(root).tensors(spoil)
    ended = run_checks(checks(root, steps=["plan", "convert", "inspect"]), "--json")
    assert ended.code == 1
    assert steps(ended) == {"plan": "pass", "convert": "fail", "inspect": "skip"}
    assert "fc.weight" in " ".join(reasons(ended))


def test_every_value_of_a_file_is_inspected(root: Path) -> None:
    assert run_checks(checks(root, steps=["convert"]), "--keep", root / "kept").code == 0
    (file,) = (root / "kept" / "a" / "auto").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:-32] + struct.pack("<f", math.nan) + data[-28:])  # the last tensor is one number
    ended = run_checks(checks(root, source=str(file.relative_to(root))), "--json")
    assert (ended.code, steps(ended)) == (1, {"inspect": "fail"})
    assert "conf_proj.bias" in " ".join(reasons(ended))


def test_a_golden_file(root: Path) -> None:
    assert run_checks(checks(root, steps=["convert"]), "--keep", root / "kept").code == 0
    (file,) = (root / "kept" / "a" / "auto").iterdir()
    path = checks(root, f'golden = "{file.relative_to(root)}"', steps=["convert", "diff"])
    assert run_checks(path).code == 0

    def change(tensors: dict[str, Any]) -> None:
        held = tensors["fc.weight"]
        tensors["fc.weight"] = held._replace(data=held.data[:-64] + held.data[:64])

    Pair(root).tensors(change)
    ended = run_checks(path, "--json")
    assert (ended.code, steps(ended)) == (1, {"convert": "pass", "diff": "fail"})
    assert f"{file.name} is another draft: " in reasons(ended)[0]
    assert reasons(ended)[1:] == ["values: fc.weight"]


def test_expectations_of_a_run(root: Path) -> None:
    expect = "acceptance = [0.5, 1]\nmean_accepted_length = 7.9\nparity = 1e-6"
    path = checks(root, expect, steps=["convert", "validate"], target="target.gguf", prompts="prompts.txt")
    ended = run_checks(path, "--json")
    assert ended.code == 1
    told = reasons(ended)
    assert told[0].startswith("acceptance at position 1 is 0.9")
    assert told[1].startswith("the mean accepted length is 6.")
    assert told[2].startswith("parity at position 0 is 0.0") and len(told) == 9


def test_an_environment_that_cannot_is_no_fault_of_the_draft(root: Path, tmp_path: Path) -> None:
    path = checks(root, steps=["convert", "validate"], target="target.gguf")
    (tmp_path / "libllama.so").write_bytes(b"no library")
    xml = tmp_path / "out.xml"
    ended = run_checks(path, "--json", "--lib", tmp_path / "libllama.so", "--junit", xml)
    assert ended.code == 4, ended.out
    assert steps(ended) == {"convert": "pass", "validate": "error"}
    assert 'errors="1"' in xml.read_text("utf-8") and "<error message=" in xml.read_text("utf-8")


def test_a_golden_plan_that_is_none_is_bad_input(root: Path) -> None:
    path = checks(root, 'plan = "plan.json"')
    write(root / "plan.json", "{}")
    ended = run_checks(path, "--json")
    assert (ended.code, steps(ended)) == (3, {"plan": "error"})


def test_failures_of_the_command_are_json_too(root: Path) -> None:
    ended = run_checks(checks(root, "tap = 1"), "--json")
    assert ended.code == 3
    jsonschema.validate(ended.document, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert [finding["rule"] for finding in ended.document["findings"]] == ["checks-key"]


def test_results_go_over_no_directory_and_not_over_the_checks(root: Path) -> None:
    path = checks(root)
    before = path.read_bytes()
    for flag in ("--junit", "--markdown"):
        for place in (root, path):
            ended = run_checks(path, flag, place)
            assert (ended.code, ended.out) == (2, "") and "give another name" in ended.err
    assert path.read_bytes() == before
