"""--verify: what it needs is looked for before a file is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.deepseek4 import make_deepseek4
from fixtures.deepseek4_gguf import write_deepseek4_gguf
from tests.checkpoints import Pair
from tests.conftest import Convert


@pytest.mark.parametrize("args", [("--prompts", "none.txt"), ("--lib", "none.so")], ids=str)
def test_nothing_is_written_if_it_cannot_be_verified(args: tuple[str, ...], pair: Pair, convert: Convert) -> None:
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--verify", *args)
    assert (ended.code, ended.out) == (2, "")
    assert args[1] in ended.err
    assert list(Path.cwd().iterdir()) == []


def test_no_library_anywhere(pair: Pair, convert: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPARK_LLAMA_LIB", "")
    monkeypatch.setattr("dspark_convert.runtime.library.package_directories", lambda _package: iter(()))
    monkeypatch.setattr("dspark_convert.runtime.library._system_library", lambda: None)
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--verify")
    assert (ended.code, ended.out) == (4, "")
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.usefixtures("one_thread")
def test_a_deepseek4_draft_is_proved_from_its_checkpoint(tmp_path: Path, convert: Convert) -> None:
    """It is random, so nothing is accepted; everything else is right."""
    model = make_deepseek4(tmp_path / "v4")
    write_deepseek4_gguf(model, target := tmp_path / "target.gguf")
    (prompts := tmp_path / "prompts.txt").write_text("once upon a time there was a little cat\n")
    ended = convert(model, "--target-gguf", target, "--verify", "--prompts", prompts, "--json")
    assert ended.code == 1
    validation = ended.document["validation"]
    assert [check["name"] for check in validation["checks"] if check["status"] != "pass"] == ["acceptance"]
    assert [position["position"] for position in validation["parity"]["positions"]] == [0, 1, 2, 3, 4]
    assert validation["parity"]["middle"] < 2e-5
    assert validation["lossless"] is True
    ended = convert(model, "--target-gguf", target, "--verify", "--prompts", prompts, "--outtype", "f32")
    assert "RoPE of neighbouring pairs" in ended.out
    assert "note: llama.cpp counts the window of 8 positions back from each slot" in ended.out


@pytest.mark.parametrize("args", [("--prompts", "prompts.txt"), ("--lib", "libllama.so")], ids=str)
def test_options_of_verify_alone_are_no_silent_no_op(args: tuple[str, ...], pair: Pair, convert: Convert) -> None:
    Path(args[1]).write_text("x\n")
    ended = convert(pair.draft, "--target-gguf", pair.gguf, *args)
    assert (ended.code, ended.out) == (2, "")
    assert "--verify" in ended.err
