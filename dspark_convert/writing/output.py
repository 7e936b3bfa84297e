"""The output path: what is refused before any work, and what errors on it are called."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from dspark_convert.errors import EnvironmentFault, UsageError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "it is larger than the file system or `ulimit -f` allows",
    errno.EACCES: "no permission to write there",
    errno.EPERM: "no permission to write there",
    errno.EROFS: "the file system is read-only",
    errno.EIO: "the device reports an input/output error",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.ENOENT: "its directory has vanished",
}


def check_output(path: Path, inputs: Iterable[Path], force: bool) -> None:
    """Raise unless ``path`` can be written: for the command line to call before any work.

    ``inputs`` are files that the output must not replace, under whatever name (links included).
    """
    parent = path.parent
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        found = None
        if not parent.is_dir():
            raise UsageError(f"{path}: the directory {parent} does not exist; create it first.") from None
    except NotADirectoryError:
        raise UsageError(f"{path}: {parent} is not a directory.") from None
    except OSError as fault:
        if fault.errno == errno.ENAMETOOLONG:
            raise UsageError(f"{path}: the name is too long for the file system.") from None
        raise EnvironmentFault(f"cannot write {path}: {reason(fault)}.") from fault
    if path.is_dir():
        raise UsageError(f"{path} is a directory; give the name of a file in it.")
    for source in inputs:
        same = False
        with contextlib.suppress(OSError):  # one of the two does not exist
            same = path.samefile(source)
        if same:
            raise UsageError(f"{path} is the same file as the input {source}; choose another output.")
    # A link is replaced, not followed; but /dev/stdout is one too, and not for replacing.
    if found and not stat.S_ISREG(found.st_mode) and not _leads_to_a_file(path):
        raise UsageError(f"{path} is a device or a pipe, not a regular file; choose another output.")
    if found and not force:
        raise exists_already(path)
    if _is_read_only(parent):
        raise EnvironmentFault(f"cannot write {path}: {_REASONS[errno.EROFS]}.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"cannot write {path}: no permission to create files in {parent}.")


def _leads_to_a_file(path: Path) -> bool:
    """Whether ``path`` is a symbolic link to a regular file, or to nothing.

    What leads to a descriptor (/proc/self/fd/1, for which /dev/stdout is a name) leads to no file: it is a
    regular one when the output is redirected, and the link is the whole machine's all the same.
    """
    if not path.is_symlink():
        return False
    try:
        target = path.parent / path.readlink()
        if target.parts[:2] == ("/", "proc") or target.parent == Path("/dev"):
            return False
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # nothing is there
        return True


def _is_read_only(directory: Path) -> bool:
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    except OSError:
        return False


@contextlib.contextmanager
def output_faults(path: Path) -> Iterator[None]:
    """Turn an OSError on the output into an EnvironmentFault of one sentence."""
    try:
        yield
    except OSError as fault:
        raise EnvironmentFault(f"cannot write {path}: {reason(fault)}.") from fault


def reason(fault: OSError) -> str:
    return _REASONS.get(fault.errno or 0, fault.strerror or str(fault))


def exists_already(path: Path) -> UsageError:
    return UsageError(f"{path} exists already; add --force to replace it, or choose another output.")
