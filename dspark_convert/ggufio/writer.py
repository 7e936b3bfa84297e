"""Writes a GGUF file: streamed into a temporary file beside the target, then put in place at once.

Whatever goes wrong, and whenever, the output path holds either its previous file, untouched, or
the whole new one. An exception removes the temporary file; only SIGKILL or a power cut leave one
behind (``.NAME.PID-RANDOM.partial``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.ggufio.encode import alignment_of, encode_header, padded
from dspark_convert.ggufio.output import check_output, exists_already, output_faults
from dspark_convert.ggufio.types import KV
from dspark_convert.jobs import TensorJob
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.stream import blocks

__all__ = ["Written", "check_output", "write"]

#: Larger writes are slower: the kernel copies what has left the cache.
WRITE_BYTES = 1 << 19


@dataclass(frozen=True)
class Written:
    """The finished file; ``sha256`` in hexadecimal, of all its bytes."""

    path: Path
    nbytes: int
    sha256: str


def write(
    path: Path,
    metadata: Sequence[KV],
    jobs: Sequence[TensorJob],
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write ``metadata`` and the tensors of ``jobs`` to ``path``.

    ``progress`` is called with the bytes done and the bytes in all. ``path`` is taken literally; a
    symbolic link there is replaced, not followed. The caller turns SIGTERM into an exception if
    the temporary file is to be removed then.

    Raises UsageError if ``path`` cannot be the output or exists without ``force``; InputError for
    what GGUF cannot hold, a bad source, and values that are not finite (all tensors are looked at
    first, one finding for each); EnvironmentFault if the disk is full or cannot be written.
    """
    check_output(path, {job.source.path for job in jobs if job.source}, force)
    header, offsets = encode_header(metadata, jobs)
    alignment = alignment_of(metadata)
    total = len(header)
    if jobs:
        total += offsets[-1] + padded(jobs[-1].nbytes, alignment)
    _check_space(path, total)
    partial = path.parent / f".{path.name[:50]}.{os.getpid()}-{secrets.token_hex(4)}.partial"
    check = NonFinite()
    digest = hashlib.sha256()
    done = 0

    def put(data: bytes | memoryview) -> None:
        nonlocal done
        if not check:  # once a value is bad the file is lost, and only the scan goes on
            _write_all(descriptor, data, path)
            digest.update(data)
        done += len(data)
        if progress:
            progress(done, total)

    try:
        with output_faults(path):
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            put(header)
            for job in jobs:
                for block in blocks(job, check):
                    put(block)
                put(bytes(padded(job.nbytes, alignment) - job.nbytes))
            if check:
                raise _not_finite(path, check)
            with output_faults(path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _publish(partial, path, force)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return Written(path, total, digest.hexdigest())


def _check_space(path: Path, needed: int) -> None:
    with output_faults(path):
        usage = shutil.disk_usage(path.parent)
    # Some network file systems report a size of 0 for "unknown".
    if usage.total and usage.free < needed:
        raise EnvironmentFault(f"cannot write {path}: it needs {needed} bytes, and {path.parent} has {usage.free} free")


def _write_all(descriptor: int, data: bytes | memoryview, path: Path) -> None:
    view = memoryview(data)
    with output_faults(path):
        while view:
            view = view[os.write(descriptor, view[:WRITE_BYTES]) :]


def _publish(partial: Path, path: Path, force: bool) -> None:
    """Give the finished file its name; without ``force`` only if nothing has it by now."""
    with output_faults(path):
        if force:
            partial.replace(path)
        else:
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
    # The file is complete and in place: not every file system can sync a directory.
    with contextlib.suppress(OSError):
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _not_finite(path: Path, check: NonFinite) -> InputError:
    findings = check.findings()
    return InputError(
        f"{path} was not written: values of {len({finding.where for finding in findings})} tensors are NaN, "
        f"infinite, or too large for the output type",
        findings=findings,
    )
