"""SARIF: what the standard requires of a log, and what a CI needs of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dspark_convert.findings import error
from dspark_convert.sarif import of_failure
from fixtures.tiny import make_tiny_pair
from tests.draft_file import HIDDEN, U32, DraftFile

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
URI = {"type": "string", "format": "uri-reference", "pattern": "^[!-~]+$"}
LOCATION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "properties": {"uri": URI, "index": {"type": "integer", "minimum": -1}},
                }
            },
        },
        "logicalLocations": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    name: {"type": "string"} for name in ("name", "fullyQualifiedName", "decoratedName", "kind")
                },
            },
        },
    },
}
#: sections 3.13, 3.14, 3.18-3.20, 3.24, 3.27, 3.28, 3.33, 3.49, 3.58 of the standard: what we use of them
SUBSET = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": {"type": "string"},
                                    "version": {"type": "string"},
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": {"type": "string"},
                                                "shortDescription": TEXT,
                                                "fullDescription": TEXT,
                                                "help": TEXT,
                                                "defaultConfiguration": {
                                                    "type": "object",
                                                    "properties": {"level": LEVEL},
                                                },
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "invocations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["executionSuccessful"],
                            "additionalProperties": False,
                            "properties": {
                                "executionSuccessful": {"type": "boolean"},
                                "toolExecutionNotifications": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["message"],
                                        "additionalProperties": False,
                                        "properties": {
                                            "level": LEVEL,
                                            "message": TEXT,
                                            "locations": {"type": "array", "items": LOCATION},
                                        },
                                    },
                                },
                            },
                        },
                    },
                    "artifacts": {
                        "type": "array",
                        "uniqueItems": True,
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "location": {"type": "object", "properties": {"uri": URI}},
                                "length": {"type": "integer", "minimum": -1},
                                "roles": {"type": "array", "items": {"const": "analysisTarget"}},
                            },
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": -1},
                                "level": LEVEL,
                                "message": TEXT,
                                "locations": {"type": "array", "items": LOCATION},
                                "partialFingerprints": {
                                    "type": "object",
                                    "additionalProperties": {"type": "string"},
                                },
                            },
                        },
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                },
            },
        },
    },
}


def inspect(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from dspark_convert.cli.inspect import main; main()", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def checked(text: str) -> dict[str, Any]:
    """The only run of a valid log."""
    log = json.loads(text)
    jsonschema.validate(log, SUBSET, cls=jsonschema.Draft202012Validator)
    run: dict[str, Any] = log["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    return run


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = DraftFile()
    file.kv["dspark.block_size"] = (U32, 5, None)
    file.kv["general.file_type"] = (U32, 0, None)
    file.tensors["blk.0.ffn_up.weight"] = ("F32", (HIDDEN, 3))
    return file.write(tmp_path / "a file.gguf")


def test_findings_with_rules_places_and_levels(bad: Path) -> None:
    done = inspect(bad, "--sarif", "-")
    assert (done.returncode, done.stderr) == (0, "")
    run = checked(done.stdout)
    found = {result["ruleId"]: result for result in run["results"]}
    assert {rule: result["level"] for rule, result in found.items()} == {
        "meaning-disagrees": "error",
        "file-type": "warning",
        "file-name": "note",
        "tensor-shape": "error",
    }
    for rule, (where, kind) in {
        "meaning-disagrees": ("dspark.block_size", "key"),
        "tensor-shape": ("blk.0.ffn_up.weight", "tensor"),
        "file-name": ("a file.gguf", "place"),
    }.items():
        (location,) = found[rule]["locations"]
        assert location["logicalLocations"] == [{"fullyQualifiedName": where, "kind": kind}]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == bad.as_uri()
    assert "To do: convert the draft again." in found["meaning-disagrees"]["message"]["text"]
    assert run["artifacts"][0]["length"] == bad.stat().st_size
    for rule in run["tool"]["driver"]["rules"]:
        assert {"shortDescription", "fullDescription", "help"} <= set(rule)
        assert "`" not in rule["help"]["text"]


def test_a_file_beside_the_usual_output(bad: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.sarif"
    done = inspect(bad, "--sarif", log, "--strict")
    assert done.returncode == 1
    assert "Findings: 2 errors, 1 warning, 1 info" in done.stdout
    first = log.read_text()
    assert len(checked(first)["results"]) == 4
    assert json.loads(inspect(bad, "--sarif", log, "--json").stdout)["schema"] == "dspark-inspect/1"
    assert log.read_text() == first  # written over, and the same


def test_fingerprints_hold_while_numbers_change(tmp_path: Path) -> None:
    seen = []
    for rows in (3, 5):
        file = DraftFile()
        file.tensors["blk.0.ffn_up.weight"] = ("F32", (HIDDEN, rows))
        (result,) = checked(inspect(file.write(tmp_path / "dspark-a.gguf"), "--sarif", "-").stdout)["results"]
        seen.append((result["message"]["text"], result["partialFingerprints"]))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] == seen[1][1]


def test_a_checkpoint_too(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path)
    config = pair.draft_dir / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"mask_token_id": 99999}))
    run = checked(inspect(pair.draft_dir, "--sarif", "-").stdout)
    assert "config-value" in {result["ruleId"] for result in run["results"]}


def test_a_file_that_cannot_be_read_is_told_in_the_log(tmp_path: Path) -> None:
    path, log = tmp_path / "x.gguf", tmp_path / "log.sarif"
    path.write_bytes(b"GGUF" + bytes(3))
    done = inspect(path, "--sarif", log)
    assert done.returncode == 3
    (invocation,) = checked(log.read_text())["invocations"]
    assert invocation["executionSuccessful"] is False
    assert str(path) in invocation["toolExecutionNotifications"][0]["message"]["text"]
    assert inspect(path, "--sarif", "-").stdout == log.read_text()
    with_findings = of_failure(path, "it ends early.", [error("truncated", "fc.weight", "it is cut.")])
    checked(json.dumps(with_findings))


def test_what_is_no_log_is_not_written_over(bad: Path, tmp_path: Path) -> None:
    before = bad.read_bytes()
    done = inspect(bad, "--sarif", bad)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no SARIF log" in done.stderr
    assert bad.read_bytes() == before
    assert inspect(bad, "--sarif", tmp_path).returncode == 2
    done = inspect(bad, "--sarif", tmp_path / "none" / "log.sarif")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert inspect(bad, "--sarif", "-", "--json").returncode == 2


def test_relative_paths_stay_relative() -> None:
    log = of_failure(Path("some dir/x.gguf"), "no.", [])
    assert log["runs"][0]["artifacts"][0]["location"]["uri"] == "some%20dir/x.gguf"


def test_names_that_are_no_text() -> None:
    log = of_failure(Path("a\udcff.gguf"), "no.", [])
    assert log["runs"][0]["artifacts"][0]["location"]["uri"] == "a%FF.gguf"
