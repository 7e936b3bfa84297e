"""Places that cannot be written: each file that dspark-check writes says so as the other commands do."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.check.places import ROOT, run_checks, write

CHECKS = '[[check]]\nname = "a"\nsource = "draft"\ntarget = "target"\nsteps = ["plan"]\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "fixtures" / "pair", tmp_path, dirs_exist_ok=True)
    write(tmp_path / "CHECKS.toml", CHECKS)
    return tmp_path


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on which everything is refused as on a read-only file system, also to root."""
    place = tmp_path / "place"
    place.mkdir()

    def refusing(method: Any) -> Any:
        def call(path: Path, *args: Any, **options: Any) -> Any:
            reads = method.__name__ == "open" and not set("wax") & set(str(args[0] if args else "r"))
            if place in path.absolute().parents and not reads and not path.is_dir():
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return method(path, *args, **options)

        return call

    for name in ("mkdir", "open", "write_text"):
        monkeypatch.setattr(Path, name, refusing(getattr(Path, name)))
    return place


def test_results_and_kept_files(root: Path, read_only: Path) -> None:
    for option, place in (("--junit", "a.xml"), ("--markdown", "a.md"), ("--keep", "")):
        ended = run_checks(root / "CHECKS.toml", option, read_only / place)
        where = read_only / (place or "a/auto")
        assert (ended.code, ended.err) == (4, f"error: {where} cannot be written: Read-only file system.\n")


def test_a_first_file(root: Path, read_only: Path) -> None:
    ended = run_checks("init", root / "draft", "-o", read_only / "C.toml")
    assert (ended.code, ended.out) == (4, "")
    assert ended.err.startswith(f"error: {read_only}")
    assert ended.err.endswith(" cannot be written: Read-only file system.\n")
