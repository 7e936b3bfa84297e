"""--verify: what it needs is looked for before a file is written."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    monkeypatch.setattr("dspark_convert.runtime.library._package_directories", lambda _package: iter(()))
    monkeypatch.setattr("dspark_convert.runtime.library._system_library", lambda: None)
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--verify")
    assert (ended.code, ended.out) == (4, "")
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("args", [("--prompts", "prompts.txt"), ("--lib", "libllama.so")], ids=str)
def test_options_of_verify_alone_are_no_silent_no_op(args: tuple[str, ...], pair: Pair, convert: Convert) -> None:
    Path(args[1]).write_text("x\n")
    ended = convert(pair.draft, "--target-gguf", pair.gguf, *args)
    assert (ended.code, ended.out) == (2, "")
    assert "--verify" in ended.err
