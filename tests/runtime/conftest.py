"""Machines that lack something, and a file of every family."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.runtime.families import FamilyFile


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any llama.cpp."""
    from dspark_convert.runtime import library

    monkeypatch.delenv("DSPARK_LLAMA_LIB", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("ctypes.util.find_library", lambda _name: None)
    monkeypatch.setattr(library, "_SYSTEM_DIRECTORIES", (str(tmp_path / "nothing"),))


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FamilyFile]:
    """The file of a family by its fixture's name, made once."""

    from tests.runtime.families import make_family

    @cache
    def make(name: str) -> FamilyFile:
        return make_family(name, tmp_path_factory.mktemp(name))

    return make
