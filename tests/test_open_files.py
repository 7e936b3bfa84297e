"""Sets of more parts than a process may open: the limit is raised where that is allowed, else told before any work."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.open_files import SPARE_FILES, require_open_files
from tests.checkpoints import Pair, snapshot

ROOT = Path(__file__).parents[1]
UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "becomes"),
    [(100, 200, None), (99, 200, 100), (10, 100, 100), (99, UNLIMITED, 100), (UNLIMITED, UNLIMITED, None)],
)
def test_the_soft_limit_is_raised(soft: int, hard: int, becomes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    require_open_files("x", 100 - SPARE_FILES, "do")
    assert asked == ([] if becomes is None else [(becomes, hard)])


@pytest.mark.parametrize("hard", [99, UNLIMITED])
def test_a_limit_that_stays(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, _limits: tuple[int, int]) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "getrlimit", lambda _: (99, hard))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(EnvironmentFault, match=r"x needs 68 files .* may open 99 here; do, or raise .* to 100 \(ul"):
        require_open_files("x", 100 - SPARE_FILES, "do")


def limited(command: str, *args: str | Path, files: int, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from dspark_convert.cli import entry; entry.{command}()"
    line = f'ulimit -n {files}; exec "$@"'
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def test_writing_and_reading_a_set(pair: Pair, tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    writing = (pair.draft, "--target-model-dir", pair.target, "-o", "d.gguf", "--split-max-size", "200K", "--sha256")
    few = limited("convert", *writing, files=40, cwd=cwd)
    assert (few.returncode, snapshot(cwd)) == (4, {})
    assert "give a larger --split-max-size, or raise the limit" in few.stderr
    assert limited("convert", *writing, files=200, cwd=cwd).returncode == 0
    (first,) = cwd.glob("*-00001-of-*.gguf")
    assert "merge its parts" in (told := limited("inspect", first, files=35, cwd=cwd)).stderr
    assert told.returncode == 4
    assert limited("inspect", first, files=200, cwd=cwd).returncode == 0
