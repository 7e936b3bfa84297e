"""Temporary files beside the output, and how they take its name.

A writer holds a lock (flock) on its temporary file for as long as it lives, and the kernel drops
the lock whatever ends the process. So the next run can tell a file that a killed run has left
behind from one that is being written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from dspark_convert.errors import UsageError
from dspark_convert.findings import Finding, info
from dspark_convert.writing.output import exists_already, output_faults

#: of the output's name in that of its temporary file; file systems allow 255 bytes in all
_NAME_CHARACTERS = 50


class Partial:
    """One temporary file of the run that writes ``output``; the name is chosen before the file is there.

    ``create`` makes and locks it, ``discard`` closes it and removes it if it still has its first name.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self.path = _temporary_name(output)
        self.descriptor = -1

    def create(self, nbytes: int) -> None:
        """Make the file at its full size, without blocks (``writeback.reserve`` gets them). Raises OSError."""
        while True:
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with contextlib.suppress(OSError):  # a file system without locks: then nobody removes it either
                fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            if os.path.lexists(self.path):
                break
            # Another run took it for a dead one in the moment before it was locked.
            self.close()
            self.path = _temporary_name(self._output)
        os.ftruncate(self.descriptor, nbytes)

    def close(self) -> None:
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def discard(self) -> None:
        """Also what a published file needs: nothing has its temporary name any more."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it was synced, or is of no use
            self.close()


def _temporary_name(output: Path) -> Path:
    name = f".{output.name[:_NAME_CHARACTERS]}.{os.getpid()}-{secrets.token_hex(4)}.partial"
    return output.parent / name


def clear_leftovers(output: Path, force: bool) -> list[Finding]:
    """Remove what killed runs for ``output`` have left, and tell so.

    A file that is being written is never touched. Raises UsageError if there is one and not ``force``:
    that run would take the name first.
    """
    found: list[Finding] = []
    pattern = re.compile(re.escape(f".{output.name[:_NAME_CHARACTERS]}.") + r"(\d+)-[0-9a-f]{8}\.partial")
    names: list[str] = []
    with contextlib.suppress(OSError):  # a directory may allow writing, but no listing
        names = sorted(path.name for path in output.parent.iterdir())
    for name in names:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        removed = _remove_if_dead(output.parent / name)
        if removed is None:
            continue
        if removed:
            message = f"{name} was removed: a run that was killed had left it."
            found.append(info("stale-partial", str(output), message))
        elif not force:
            raise UsageError(
                f"{output} is being written by another run (process {match[1]}); wait for it, or choose another output."
            )
        else:
            message = f"another run (process {match[1]}) writes {output} too; the one that ends last stays."
            found.append(info("written-twice", str(output), message))
    return found


def _remove_if_dead(path: Path) -> bool | None:
    """True: it was; False: its writer lives; None: there is no telling, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return False
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return True


def publish(output: Path, files: Sequence[tuple[Partial, Path]], beside: Sequence[Path], force: bool) -> None:
    """Give the finished files of a run for ``output`` their names, the first one last: without it nothing loads a set.

    A single file takes its name at once, and its place if ``force``. Of a set, the files that it replaces
    step aside first (their first one first), so that parts of two sets never pass for one; so do
    ``beside``, hashes of files that are no more. If anything fails, all come back. Signals have to be held.
    """
    moved: list[tuple[Path, Path]] = []
    try:
        for path in [*beside, *(path for _, path in files if len(files) > 1 and force)]:
            aside = _temporary_name(output)
            with output_faults(path), contextlib.suppress(FileNotFoundError):
                path.rename(aside)
                moved.append((aside, path))
        for partial, path in reversed(files):
            with output_faults(path):
                _place(partial.path, path, force)
    except BaseException:
        for partial, path in files:
            with contextlib.suppress(OSError):
                if os.path.samestat(path.lstat(), os.fstat(partial.descriptor)):  # what others put there stays
                    path.unlink()
        for aside, path in moved:
            with contextlib.suppress(OSError):
                aside.rename(path)
        raise
    for aside, _ in moved:
        with contextlib.suppress(OSError):
            aside.unlink()
    _sync_directory(output.parent)


def _place(partial: Path, path: Path, force: bool) -> None:
    """Name a finished file; without ``force`` only if nothing has the name by now."""
    if force:
        partial.replace(path)
        return
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        raise exists_already(path) from None
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise exists_already(path) from None
        partial.rename(path)
    else:
        partial.unlink()


def _sync_directory(directory: Path) -> None:
    # All is complete and in place: not every file system can sync a directory.
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
