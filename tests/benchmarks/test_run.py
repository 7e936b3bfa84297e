"""A row is run in turns, its outputs are deleted, and what fails is told in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peer import Peer
from benchmarks.rows import ROWS, Bench, Command, Row, check_space
from benchmarks.run import run_row

PEER = Peer(Path(sys.executable), Path("/nowhere"))


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs may have much to write."""
    monkeypatch.setattr("benchmarks.run.os.sync", lambda: None)


def writes(path: Path, log: Path) -> Command:
    code = f"open({str(path)!r}, 'w').write('x'); open({str(log)!r}, 'a').write({path.name!r} + '\\n')"
    return [sys.executable, "-S", "-c", code]


def test_turns_and_clean_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    row = Row(
        "both", lambda bench: writes(bench.outfile, log), lambda bench, _: writes(bench.peer_outfile, log), must=0.001
    )
    result = run_row(row, bench := Bench(tmp_path, PEER), 2)
    assert log.read_text().split() == ["peer.gguf", "ours.gguf"] * 2
    assert (len(result.ours), len(result.theirs), result.failed) == (2, 2, None)
    assert not bench.outfile.exists()
    assert not bench.peer_outfile.exists()
    run_row(row, bench, 1, keep=True)
    assert bench.outfile.exists()


def test_without_a_peer_ours_runs_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    row = Row("both", lambda bench: writes(bench.outfile, log), lambda *_: [sys.executable, "-c", "1 / 0"], must=1)
    result = run_row(row, Bench(tmp_path, None), 1)
    assert (len(result.ours), result.theirs, result.figure, result.failed) == (1, [], None, None)


def test_a_failure_stays_in_its_row(tmp_path: Path) -> None:
    row = Row("broken", lambda _: [sys.executable, "-S", "-c", "raise SystemExit('no such type')"])
    assert run_row(row, Bench(tmp_path, None), 3).failed == "failed: exit code 1: no such type"


def test_every_target_has_its_row() -> None:
    """The rows of the target table with their "must" and "aim"."""
    targets = {row.name: (row.must, row.aim) for row in ROWS if row.must is not None}
    assert targets == {
        "Q bf16": (8, 14),
        "Q f16": (5, 10),
        "Q f32": (2.5, 5),
        "Q q8_0": (3, 10),
        "D auto": (8, 15),
        "q bf16": (12, 15),
        "inspect, 150,000 tokens": (20, 40),
        "--help": (0.5, 0.3),
        "--version": (0.5, 0.3),
        "--dry-run, 72,317 tensors": (2.0, None),
    }
    assert all(row.peak_must == 150e6 and row.peak_aim == 100e6 for row in ROWS if row.copied)


def test_too_little_space_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_space(tmp_path / "new", tuple(row for row in ROWS if row.name == "--help"))
    monkeypatch.setattr("benchmarks.rows.shutil.disk_usage", lambda _: type("Usage", (), {"free": 14_000_000_000}))
    with pytest.raises(SystemExit, match=r"has 14\.0 GB free, and these rows need up to 14\.4 GB"):
        check_space(tmp_path, ROWS[:1])


def test_the_list_of_rows_needs_nothing() -> None:
    command = [sys.executable, "-m", "benchmarks.run", "--list"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.splitlines() == [row.name for row in ROWS]
