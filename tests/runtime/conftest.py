"""Pairs made once for all tests of the runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.pairs import PairFiles, make_bigram_pair, make_random_pair


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return make_random_pair(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def bigram_pair(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return make_bigram_pair(tmp_path_factory.mktemp("bigram"))


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any llama.cpp."""
    from dspark_convert.runtime import library

    monkeypatch.delenv("DSPARK_LLAMA_LIB", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("ctypes.util.find_library", lambda _name: None)
    monkeypatch.setattr(library, "_SYSTEM_DIRECTORIES", (str(tmp_path / "nothing"),))
