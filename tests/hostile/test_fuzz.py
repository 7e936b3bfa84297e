"""A run of the fuzz; and that it would see what it looks for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import fuzz
from tests.hostile.ggml_child import Ggml

ROOT = Path(__file__).parents[2]
CASES = 20_000


def test_nothing_goes_wrong(tmp_path: Path) -> None:
    arguments = ["--cases", str(CASES), "--seed", "20261129", "--keep", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.fuzz", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["cases"] == CASES
    assert done.returncode == 0
    # The cases are of every kind, and both verdicts were compared.
    assert all(report["ended"][kind] > CASES / 100 for kind in ("draft", "no draft", "other", "refused"))
    assert all(report["ggml"][verdict] > CASES / 10 for verdict in ("took", "refused"))
    assert len(report["rules"]) > 60


@pytest.fixture(scope="module")
def ggml() -> Iterator[Ggml]:
    with Ggml() as process:
        yield process


@pytest.fixture
def wrong(tmp_path: Path, ggml: Ggml) -> Iterator[Callable[..., str]]:
    """What a short run says is wrong."""
    handler = signal.getsignal(signal.SIGPROF)

    def run(cases: int = 60) -> str:
        return "\n".join(fuzz.Fuzz(7, tmp_path, ggml, None).run(0, cases).wrong)

    yield run
    signal.signal(signal.SIGPROF, handler)


def test_without_sabotage(wrong: Callable[..., str]) -> None:
    assert wrong() == ""


def test_a_check_that_is_missing(wrong: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_convert.ggufio.reader.check_layout", lambda *_: [])
    assert "ggml refuses what we take" in wrong()


def test_a_check_too_many(wrong: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_convert.ggufio.cursor.MAX_METADATA_ENTRIES", 29)
    monkeypatch.setattr("tests.hostile.fuzz.WE_REFUSE", {})
    assert "ggml and gguf-py take what we refuse" in wrong(30)


def test_an_exception(wrong: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("of a bug")

    monkeypatch.setattr("dspark_convert.lint.meaning.check_meaning", fail)
    assert "KeyError: 'of a bug'" in wrong()


def test_a_loop_without_end(wrong: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any) -> None:
        while True:
            pass

    monkeypatch.setattr("tests.hostile.fuzz.MAX_SECONDS", 0.1)
    monkeypatch.setattr("dspark_convert.lint.meaning.check_meaning", hang)
    assert "more than 0.1 s" in wrong(8)


def test_text_that_is_not_escaped(wrong: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("describe", "output", "text", "view"):
        monkeypatch.setattr(f"dspark_convert.cli.{module}.safe", lambda text, _limit=None: text)
    assert "this is printed" in wrong(600)


MEMORY = """
import dspark_convert.lint.meaning
from tests.hostile import fuzz

held = []
fuzz.WARM_UP = 20
dspark_convert.lint.meaning.check_meaning = lambda *_: held.append(bytes(range(256)) * 65536) or ()
fuzz.main()
"""


def test_memory_that_is_wasted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, "--cases", "60"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "the memory grew by 16," in done.stdout, done.stderr
