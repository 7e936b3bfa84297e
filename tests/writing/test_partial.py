"""What the next run takes for a killed run's temporary file, and what it leaves alone."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_convert.errors import UsageError
from dspark_convert.writing import partial
from dspark_convert.writing.partial import Partial, clear_leftovers
from dspark_convert.writing.writer import write
from tests.writing.writing import METADATA, jobs, names

STALE = ".out.gguf.4242-0badcafe.partial"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.gguf"


def test_what_a_dead_writer_left_is_removed_and_told(out: Path) -> None:
    (out.parent / STALE).write_bytes(b"half")
    written = write(out, METADATA, jobs(out.parent))
    assert names(out.parent) == {"out.gguf"}
    (finding,) = written.findings
    assert (finding.rule, finding.severity, finding.where) == ("stale-partial", "info", str(out))
    assert finding.message == f"{STALE} was removed: a run that was killed had left it."


@pytest.mark.parametrize(
    "name",
    [
        ".out.gguf.4242-0badcafe.partial.txt",
        ".out.gguf.4242-0BADCAFE.partial",
        ".out.gguf.x-0badcafe.partial",
        "out.gguf.4242-0badcafe.partial",
        ".other.gguf.4242-0badcafe.partial",
        ".outXgguf.4242-0badcafe.partial",
        ".out.gguf.partial",
    ],
)
def test_other_names_are_left_alone(out: Path, name: str) -> None:
    (out.parent / name).write_bytes(b"a user's")
    assert clear_leftovers(out, force=True) == []
    assert (out.parent / name).read_bytes() == b"a user's"


def test_what_is_no_file_is_left_alone(out: Path) -> None:
    (out.parent / "real").write_bytes(b"real")
    (out.parent / STALE).symlink_to("real")
    os.mkfifo(out.parent / STALE.replace("4242", "1"))
    (out.parent / STALE.replace("4242", "2")).mkdir()
    before = names(out.parent)
    assert clear_leftovers(out, force=True) == []
    assert names(out.parent) == before


@pytest.fixture
def live(out: Path) -> str:
    """The name of a temporary file that is being written."""
    other = Partial(out)
    other.create(1)
    yield other.path.name
    other.discard()


def test_a_live_one_is_told_and_left_alone(out: Path, live: str) -> None:
    made = jobs(out.parent)
    with pytest.raises(UsageError, match=rf"is being written by another run \(process {os.getpid()}\); wait for it"):
        write(out, METADATA, made)
    assert names(out.parent) == {live}
    written = write(out, METADATA, made, force=True)
    assert [(finding.rule, finding.severity) for finding in written.findings] == [("written-twice", "info")]
    assert names(out.parent) == {live, "out.gguf"}


def test_the_lock_ends_with_the_process(out: Path) -> None:
    code = """
import os, pathlib, sys
from dspark_convert.writing.partial import Partial
Partial(pathlib.Path(sys.argv[1])).create(9)
print(flush=True)
sys.stdin.read()
os._exit(0)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        child.stdout.readline()
        (name,) = names(out.parent)
        with pytest.raises(UsageError, match=f"process {child.pid}"):
            clear_leftovers(out, force=False)
        child.kill()
    assert [finding.rule for finding in clear_leftovers(out, force=False)] == ["stale-partial"]
    assert re.fullmatch(rf"\.out\.gguf\.{child.pid}-[0-9a-f]{{8}}\.partial", name)
    assert names(out.parent) == set()


@pytest.mark.parametrize("works", [True, False])
def test_a_file_system_without_locks(out: Path, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """There nobody can tell whether a writer lives, so nothing is removed; and all else works."""

    def no_locks(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    (out.parent / STALE).write_bytes(b"half")
    if not works:
        monkeypatch.setattr(fcntl, "flock", no_locks)
    write(out, METADATA, jobs(out.parent))
    assert names(out.parent) == {"out.gguf"} | (set() if works else {STALE})


def test_one_that_is_removed_before_it_is_locked_is_made_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run may look at it between the two."""
    real, taken = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not taken and how == fcntl.LOCK_EX:
            taken.extend(clear_leftovers(out, force=False))
        real(descriptor, how)

    monkeypatch.setattr(partial.fcntl, "flock", late)
    made = Partial(out)
    made.create(123)
    assert len(taken) == 1
    assert made.path.stat().st_size == 123
    assert names(out.parent) == {made.path.name}
    made.discard()
    assert names(out.parent) == set()


def test_a_directory_that_cannot_be_listed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    made = jobs(out.parent)
    assert write(out, METADATA, made).findings == ()
    assert out.exists()


def test_no_blocks_are_reserved(out: Path) -> None:
    made = Partial(out)
    made.create(1 << 40)
    assert made.path.stat().st_size == 1 << 40
    assert made.path.stat().st_blocks < 100
    made.discard()


def test_two_runs_at_once_both_write_whole_files(out: Path) -> None:
    """The one that ends last stays, and the other's file was as whole."""
    made = jobs(out.parent)
    reference = write(out.parent / "inputs" / "reference", METADATA, made).path.read_bytes()
    seen: list[bytes] = []

    def nested(done: int, total: int) -> None:
        if done == total and not seen:
            seen.append(b"")
            written = write(out, METADATA, made, force=True)
            assert [finding.rule for finding in written.findings] == ["written-twice"]
            seen[0] = out.read_bytes()

    write(out, METADATA, made, force=True, progress=nested)
    assert seen == [reference]
    assert out.read_bytes() == reference
    assert names(out.parent) == {"out.gguf"}


def test_two_runs_at_once_without_force(out: Path) -> None:
    """Of two that begin before either has a temporary file, the first to end stays."""
    made = jobs(out.parent)

    def nested(done: int, total: int) -> None:
        if done == total:
            out.write_bytes(b"the other's")

    with pytest.raises(UsageError, match="exists already"):
        write(out, METADATA, made, progress=nested)
    assert out.read_bytes() == b"the other's"
    assert names(out.parent) == {"out.gguf"}
