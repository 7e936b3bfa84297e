"""Machines that lack something, and models too small for threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any llama.cpp."""
    from dspark_convert.runtime import library

    monkeypatch.delenv("DSPARK_LLAMA_LIB", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("ctypes.util.find_library", lambda _name: None)
    monkeypatch.setattr(library, "_SYSTEM_DIRECTORIES", (str(tmp_path / "nothing"),))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost small models more than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
