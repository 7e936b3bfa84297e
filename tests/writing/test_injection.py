"""Every single call that writes fails once, in every way: one message, and the files before are whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.writing.writer import Hashing, write
from tests.writing.writing import METADATA, jobs, names

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "it is larger than the file system or `ulimit -f` allows",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the device reports an input/output error",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.ENOENT: "its directory has vanished",
    errno.ESTALE: "Stale file handle",
}
CALLS = ("open", "ftruncate", "pwrite", "fsync", "rename", "replace")

#: bytes: the header of the test's metadata has over 1,100, so this makes four parts
SPLIT = 1_600


class Injection:
    """Counts the calls of CALLS on files that are written; the one numbered ``fail_at`` raises ``number``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.fail_at, self.number = -1, 0
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            writes = str(args[0]).endswith(".partial") if name == "open" else not is_directory(args[0])
            if writes:
                self.seen.append(name)
                if len(self.seen) - 1 == self.fail_at:
                    raise OSError(self.number, os.strerror(self.number))
            return real(*args, **options)

        return call


def is_directory(where: Any) -> bool:
    """What cannot be synced of a directory is no fault: the file is complete then."""
    return isinstance(where, int) and stat.S_ISDIR(os.fstat(where).st_mode)


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in names(directory)}


@pytest.mark.parametrize("split", [None, SPLIT])
@pytest.mark.parametrize("replacing", [False, True])
def test_every_call_fails_once(
    tmp_path: Path, split: int | None, replacing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jobs(tmp_path)
    out = tmp_path / "out.gguf"
    options: dict[str, Any] = {"force": replacing, "split_max_size": split, "threads": 1}
    written = write(out, METADATA, made, **options)
    assert len(written.files) == (4 if split else 1)
    whole = contents(tmp_path)
    for file in written.files:
        file.path.write_bytes(b"previous " + file.path.name.encode()) if replacing else file.path.unlink()
    if replacing:
        (tmp_path / f"{written.path.name}.sha256").write_text("its hash")
    before = contents(tmp_path)

    calls = Injection(monkeypatch)
    numbers = [number for number in REASONS if number != errno.ENOENT]  # of what steps aside that is no fault
    at = 0
    while True:
        calls.seen.clear()
        calls.fail_at, calls.number = at, numbers[at % len(numbers)]
        if contents(tmp_path) != before:
            pytest.fail(f"call {at - 1}, {calls.seen}, did harm")
        try:
            write(out, METADATA, made, **options)
        except EnvironmentFault as fault:
            (reason,) = str(fault).splitlines()
            assert reason.startswith(f"cannot write {tmp_path}/out")
            assert reason.endswith(f": {REASONS[calls.number]}.")
        else:
            break
        at += 1
    monkeypatch.undo()
    assert at == len(calls.seen) >= 10
    assert set(calls.seen) >= {"open", "ftruncate", "pwrite", "fsync"} | ({"replace"} if replacing else set())
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("number", REASONS)
def test_a_name_cannot_be_given(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --force: a link fails for want of links, then the rename for its own reason."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    made = jobs(tmp_path)
    monkeypatch.setattr(os, "link", fail)
    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(EnvironmentFault) as caught:
        write(tmp_path / "out.gguf", METADATA, made)
    assert str(caught.value) == f"cannot write {tmp_path / 'out.gguf'}: {REASONS[number]}."
    assert names(tmp_path) == set()


@pytest.mark.parametrize("parts", [1, 3])
def test_a_hash_that_cannot_be_written_beforehand(tmp_path: Path, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = jobs(tmp_path)
    real = os.fdopen

    def full(*args: Any, **options: Any) -> Any:
        real(*args, **options).close()
        return real(os.open("/dev/full", os.O_WRONLY), "wb")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(EnvironmentFault, match=r"out.*gguf\.sha256: the disk is full"):
        write(
            tmp_path / "out.gguf",
            METADATA,
            made,
            split_max_size=SPLIT if parts > 1 else None,
            hashing=Hashing(sidecar=True),
        )
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.EIO, EnvironmentFault, "cannot read tensor .*: Input/output error"),
        (errno.ESTALE, EnvironmentFault, "cannot read tensor .*: Stale file handle"),
        (errno.ENOENT, InputError, "the file of tensor .* has vanished"),
    ],
)
def test_a_read_that_fails(
    tmp_path: Path, number: int, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = jobs(tmp_path)
    (tmp_path / "out.gguf").write_bytes(b"previous")

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(kind, match=words):
        write(tmp_path / "out.gguf", METADATA, made, force=True)
    assert contents(tmp_path) == {"out.gguf": b"previous"}
