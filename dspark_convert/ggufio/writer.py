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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.findings import Finding, warning
from dspark_convert.ggufio.encode import alignment_of, encode_header
from dspark_convert.ggufio.output import check_output, exists_already, output_faults
from dspark_convert.ggufio.types import KV, padded
from dspark_convert.jobs import TensorJob
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.stream import blocks

#: Larger writes are slower: the kernel copies what has left the cache.
WRITE_BYTES = 1 << 19


@dataclass(frozen=True)
class Written:
    """The finished file; ``sha256`` in hexadecimal, of all its bytes. ``findings`` are warnings
    about values, which only the writing sees."""

    path: Path
    nbytes: int
    sha256: str
    findings: tuple[Finding, ...] = ()


def write(
    path: Path,
    metadata: Sequence[KV],
    jobs: Sequence[TensorJob],
    *,
    force: bool = False,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write ``metadata`` and the tensors of ``jobs`` to ``path``.

    ``progress`` is called with the bytes done and the bytes in all. ``path`` is taken literally; a
    symbolic link there is replaced, not followed. The caller turns SIGTERM into an exception if
    the temporary file is to be removed then.

    Raises UsageError if ``path`` cannot be the output or exists without ``force``; InputError for
    what GGUF cannot hold, a bad source or one that changes meanwhile, and values that are not
    finite (all tensors are looked at first, one finding for each), with ``strict`` also for a
    matrix of zeros; EnvironmentFault if the disk is full or cannot be written.
    """
    sources = sorted({ref.path for job in jobs for ref in job.refs})
    check_output(path, sources, force)
    before = _stamps(sources)
    zero: list[Finding] = []
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
                for block in _told_if_zero(job, blocks(job, check), zero):
                    put(block)
                put(bytes(padded(job.nbytes, alignment) - job.nbytes))
            if check:
                raise _not_finite(path, check)
            if changed := [source for source, stamp in before.items() if _stamps([source])[source] != stamp]:
                raise InputError(f"{changed[0]} changed while it was read; convert again when nothing writes to it.")
            if zero and strict:
                raise InputError(f"{path} was not written: matrices are all zero.", findings=zero)
            with output_faults(path):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _publish(partial, path, force)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return Written(path, total, digest.hexdigest(), tuple(zero))


def _stamps(sources: Iterable[Path]) -> dict[Path, tuple[int, ...] | None]:
    """What tells a file from its later states; None if it is not there."""
    stamps: dict[Path, tuple[int, ...] | None] = {}
    for source in sources:
        try:
            status = source.stat()
        except OSError:
            stamps[source] = None
        else:
            stamps[source] = status.st_ino, status.st_size, status.st_mtime_ns
    return stamps


def _told_if_zero(job: TensorJob, pieces: Iterator[memoryview], findings: list[Finding]) -> Iterator[memoryview]:
    """Pass ``pieces`` on; a matrix without a single value is what a download leaves that was never finished."""
    zero = job.source is not None and len(job.shape) > 1
    for piece in pieces:
        zero = zero and not np.frombuffer(piece, np.uint8).any()
        yield piece
    if zero and job.source is not None:
        name = job.source.name
        message = f"{job.source.path}: all values are zero."
        findings.append(warning("all-zero", name, message, "the checkpoint is damaged: fetch it again"))


def _check_space(path: Path, needed: int) -> None:
    with output_faults(path):
        usage = shutil.disk_usage(path.parent)
    # Some network file systems report a size of 0 for "unknown".
    if usage.total and usage.free < needed:
        raise EnvironmentFault(
            f"cannot write {path}: it needs {needed} bytes, and {path.parent} has {usage.free} free."
        )


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
        f"infinite, or too large for the output type.",
        findings=findings,
    )
