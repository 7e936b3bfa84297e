"""A child that dies, or says nothing of use, is a step that could not be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.check.checks import Case, Check
from dspark_convert.check.children import Children, Ended
from dspark_convert.check.steps import Unable, Work, _failed
from tests.check.places import write


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(Case(Check("a", tmp_path, ("plan",)), "auto"), Children(), tmp_path)


def child(work: Work, monkeypatch: pytest.MonkeyPatch, body: str) -> Ended:
    modules = work.directory / "modules"
    write(modules / "made_up.py", f"import os, sys, json\n\n\ndef main():\n    {body}\n")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    return work.children.run("made_up", ["one", "two"], work.directory)


def test_one_that_is_killed(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = child(work, monkeypatch, "os.kill(os.getpid(), 9)")
    with pytest.raises(Unable, match="ended by signal 9") as fault:
        _failed(work, ended)
    assert fault.value.exit_code == 4


def test_one_that_prints_no_document(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = child(work, monkeypatch, "print('[1]'); print('a\\nb\\nc\\nwhy', file=sys.stderr); sys.exit(70)")
    assert ended == Ended(70, None, "b; c; why")
    with pytest.raises(Unable, match="b; c; why"):
        _failed(work, ended)


def test_bad_input_is_what_a_check_looks_for(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"error": {"message": "it is bad.", "exit_code": 3}, "findings": []}
    ended = child(work, monkeypatch, f"json.dump({error}, sys.stdout); sys.exit(3)")
    assert _failed(work, ended) == ["it is bad."]


def test_what_lies_in_the_directory_is_not_imported(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    write(work.directory / "colorsys.py", "raise SystemExit(99)")
    ended = child(work, monkeypatch, "import colorsys; json.dump({'argv': sys.argv[1:]}, sys.stdout)")
    assert (ended.code, ended.document) == (0, {"argv": ["one", "two"]})
