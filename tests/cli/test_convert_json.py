"""dspark-convert --json keeps its promise: every document fits the schema, and the figures are true."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fixtures.hf_pair import TinyPair
from fixtures.tiny import make_tiny_pair

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "convert-1.json").read_text())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return make_tiny_pair(tmp_path_factory.mktemp("pair"))


def convert(*args: object) -> tuple[int, Any]:
    command = [sys.executable, "-m", "dspark_convert.cli.convert", *map(str, args), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return done.returncode, document


def test_written_file_is_described(pair: TinyPair, tmp_path: Path) -> None:
    output = tmp_path / "draft.gguf"
    code, document = convert(pair.draft_dir, "--target-model-dir", pair.target_dir, "-o", output)
    assert code == 0
    data = output.read_bytes()
    assert document["output"] == {
        "path": str(output),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    assert document["validation"] is None
    assert sum(tensor["bytes"] for tensor in document["plan"]["tensors"]) <= len(data)
    assert document["plan"]["metadata"]["dflash.target_layers"] == [1, 2, 3]


def test_dry_run_writes_nothing(pair: TinyPair, tmp_path: Path) -> None:
    code, document = convert(
        pair.draft_dir, "--target-model-dir", pair.target_dir, "-o", tmp_path / "d.gguf", "--dry-run"
    )
    assert (code, document["output"]) == (0, None)
    assert list(tmp_path.iterdir()) == []
    assert len(document["plan"]["tensors"]) == 40


def test_refusal_is_json_too(pair: TinyPair, tmp_path: Path) -> None:
    code, document = convert(
        pair.draft_dir, "--target-model-dir", pair.target_dir, "--mask-token-id", "999999", "-o", tmp_path
    )
    assert code == document["error"]["exit_code"] == 3
    assert [f["rule"] for f in document["findings"] if f["severity"] == "error"] == ["config-value"]
    assert list(tmp_path.iterdir()) == []
