"""Machines that lack something."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any llama.cpp."""
    from dspark_convert.runtime import library

    monkeypatch.delenv("DSPARK_LLAMA_LIB", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("ctypes.util.find_library", lambda _name: None)
    monkeypatch.setattr(library, "_SYSTEM_DIRECTORIES", (str(tmp_path / "nothing"),))
