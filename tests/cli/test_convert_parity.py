"""--verify compares the new file with the checkpoint that it came from, or says why not."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from safetensors.torch import load_file, save_file

from dspark_convert.runtime.proof import why_not_compared
from tests.checkpoints import Pair
from tests.conftest import Convert, Ended

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "validate-1.json").read_text())
COMPARED = {"metadata", "values", "features", "parity", "confidence"}


@pytest.fixture
def verify(pair: Pair, convert: Convert, tmp_path: Path) -> Any:
    (tmp_path / "prompts.txt").write_text("the small boat\n")

    def call(*args: str) -> Ended:
        return convert(
            pair.draft, "--target-gguf", pair.gguf, "--verify", "--prompts", tmp_path / "prompts.txt", "--json", *args
        )

    return call


def states(ended: Ended) -> dict[str, str]:
    validation = ended.document["validation"]
    jsonschema.validate(validation, SCHEMA, cls=jsonschema.Draft202012Validator)
    return {check["name"]: check["status"] for check in validation["checks"]}


@pytest.mark.parametrize("outtype", ["f32", "auto", "q8_0"])
def test_what_the_converter_writes_is_what_the_checkpoint_computes(verify: Any, outtype: str) -> None:
    ended = verify("--outtype", outtype)
    assert {name: status for name, status in states(ended).items() if status != "pass"} == {"acceptance": "fail"}
    assert states(ended).keys() >= COMPARED
    assert ended.code == 1  # a random draft is no use
    positions = ended.document["validation"]["parity"]["positions"]
    assert len(positions) == 7
    if outtype == "f32":
        assert max(position["relative"] for position in positions) < 1e-5
    assert "not compared" not in ended.err
    assert "not-compared" not in [rule for rule, _ in ended.findings("info")]


def test_own_tables(verify: Any) -> None:
    ended = verify("--outtype", "f32", "--shared-tensors", "include")
    assert {name: status for name, status in states(ended).items() if status != "pass"} == {"acceptance": "fail"}


def test_without_torch_it_is_left_out_and_told(verify: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_convert.runtime.proof.NEEDED", ("torch_of_nowhere",))
    ended = verify()
    assert not states(ended).keys() & COMPARED
    assert ended.document["validation"]["parity"] is None
    assert "note: the file is not compared with the checkpoint: torch_of_nowhere not installed" in ended.err
    told = next(finding for finding in ended.document["findings"] if finding["rule"] == "not-compared")
    assert told["severity"] == "info"
    assert told["message"].startswith("the file is not compared with the checkpoint: torch_of_nowhere not installed")


def test_config_that_an_option_overrides_is_no_truth(verify: Any) -> None:
    ended = verify("--mask-token-id", "505")
    assert not states(ended).keys() & COMPARED
    assert "an option overrides its config" in ended.err


def test_checkpoint_that_the_reference_cannot_compute_is_told_beforehand(pair: Pair) -> None:
    path = pair.draft / "model.safetensors"
    tensors = load_file(path)
    assert why_not_compared(pair.draft) == ""
    save_file({name: tensor.clone() for name, tensor in tensors.items() if name != "norm.weight"}, path)
    assert "norm.weight" in why_not_compared(pair.draft)
