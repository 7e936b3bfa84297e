"""Every file of the corpus: what is said of it, how the command ends, and that no memory is wasted on it."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.ggufio.reader import open_gguf
from tests.conftest import Convert, Ended
from tests.hostile.corpus import CORPUS
from tests.hostile.raw import draft


def told(ended: Ended) -> str:
    return ended.out + ended.err


def test_the_draft_that_is_bent_is_good(tmp_path: Path, inspect: Convert) -> None:
    path = tmp_path / "dspark-x.gguf"
    path.write_bytes(draft())
    ended = inspect("--strict", path)
    assert (ended.code, ended.err) == (0, "")
    assert "Nothing wrong was found." in ended.out


@pytest.mark.parametrize("name", [pytest.param(name, id=f"{case.row} {name}".strip()) for name, case in CORPUS.items()])
def test_corpus(tmp_path: Path, inspect: Convert, name: str) -> None:
    case = CORPUS[name]
    path = tmp_path / "dspark-x.gguf"
    path.write_bytes(case.build())
    ended = inspect("--strict", path)
    assert (ended.code, case.says in told(ended)) == (case.code, True), told(ended)
    document = inspect("--strict", "--json", path)
    assert document.code == case.code
    if case.code == 3:
        assert str(path) in document.document["error"]["message"]
    else:
        rules = {f["rule"] for f in document.document["findings"] if not case.code or f["severity"] != "info"}
        assert not case.rule or case.rule in rules, rules


@pytest.mark.parametrize("name", [name for name, case in CORPUS.items() if case.code == 3])
def test_what_cannot_be_read_costs_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(CORPUS[name].build())
    tracemalloc.start()
    try:
        with pytest.raises(InputError), open_gguf(path) as file:
            raise InputError(f"{file.path} can be opened.")
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("row", ["G29", "G31", "G32", "G33", "G35", "G36", "G39"])
def test_each_row_has_files(row: str) -> None:
    """The rows of failures.md, section 2d, are part of the tests' names; G27, G30 and G38: see the other files."""
    assert any(case.row == row for case in CORPUS.values())


def test_the_first_of_two_entries_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(draft(lambda raw: raw.entries.update(again=raw.build.kv("dflash.block_size", 4, 9))))
    with open_gguf(path) as file:
        assert file.metadata["dflash.block_size"] == 7


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_gguf(tmp_path / "none.gguf")
    with pytest.raises(InputError, match=r"is a directory; give a \.gguf file"):
        open_gguf(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="convert it with dspark-convert first"):
        open_gguf(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="device or pipe"):
        open_gguf(tmp_path / "pipe")
    with pytest.raises(InputError, match="NUL"):
        open_gguf("a\0b")
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        open_gguf(tmp_path / "loop.gguf")


def test_damaged_files_are_not_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(CORPUS["name twice"].build())
    with open_gguf(path) as file, pytest.raises(InputError, match="is damaged"):
        file.require_sound()
