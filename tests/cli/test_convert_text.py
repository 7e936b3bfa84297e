"""What a conversion tells a reader."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.convert import write
from dspark_convert.writing.writer import Written
from tests.checkpoints import Pair
from tests.conftest import Convert


def test_a_name_cannot_forge_a_line(pair: Pair, convert: Convert) -> None:
    name = "a.gguf\nerror: forged\x1b[2J"
    for more in ((), ("--dry-run", "--force")):
        ended = convert(pair.draft, "--target-gguf", pair.gguf, "-o", name, *more)
        assert ended.code == 0
        assert "a.gguf\\nerror: forged\\x1b[2J" in ended.out
        assert not any(line.startswith("error") for line in ended.out.splitlines())
    assert Path(name).is_file()


@pytest.mark.parametrize(("threads", "says"), [("0", "greater than or equal to 1"), ("17", "less than or equal to 16")])
def test_as_many_threads_as_memory_is_promised_for(threads: str, says: str, pair: Pair, convert: Convert) -> None:
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--threads", threads)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err and "'--threads'" in ended.err


def test_a_long_conversion_says_how_far_it_is(pair: Pair, convert: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    command = (pair.draft, "--target-gguf", pair.gguf, "--force", "-o", "out.gguf")
    silent = convert(*command)
    assert "writing" not in silent.err
    monkeypatch.setattr("dspark_convert.cli.progress.LINE_SECONDS", 0.0)
    monkeypatch.setattr("dspark_convert.cli.progress.LINE_SHARE", 0.0)

    def slow(*args: Any, progress: Callable[[int, int], None], **options: Any) -> Written:
        progress(1, 2)  # the writer itself may be done before it first tells
        return write(*args, progress=progress, **options)

    monkeypatch.setattr("dspark_convert.convert.write", slow)
    told = convert(*command)
    lines = [line for line in told.err.splitlines() if line.startswith("writing: ")]
    assert re.fullmatch(r"writing: .* of .* \(\d+ %\), .*/s(, .* left)?", lines[0])
    assert re.fullmatch(r"writing: .*B in 0 s, .*/s", lines[-1])
    assert told.out == silent.out
    assert "writing" not in convert(*command, "--quiet").err


@pytest.mark.parametrize("token", ["-1", str(2**32)])
def test_a_mask_token_that_no_file_can_hold(token: str, pair: Pair, convert: Convert) -> None:
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "--mask-token-id", token)
    assert (ended.code, ended.out) == (2, "")
    assert "'--mask-token-id'" in ended.err


def test_a_file_in_place_of_a_draft(convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("x")
    ended = convert(tmp_path / "some.txt")
    assert ended.code == 2
    assert "some.txt is a file, expected a checkpoint directory or a GGUF" in ended.err
