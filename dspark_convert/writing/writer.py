"""Writes a GGUF file, or a split set of them: into temporary files beside the target, then put in place at once.

Whatever goes wrong, and whenever, the output path holds either its previous file, untouched, or
the whole new one. An exception removes the temporary files; only SIGKILL or a power cut leave them
behind (``.NAME.PID-RANDOM.partial``), and the next run for the same output removes those.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.findings import Finding, info
from dspark_convert.ggufio.split import Part, lay_out, other_sets
from dspark_convert.ggufio.types import KV
from dspark_convert.jobs import TensorJob
from dspark_convert.open_files import require_open_files
from dspark_convert.tensors.losses import Loss
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.writing.engine import Filled, fill
from dspark_convert.writing.hashes import encode_sidecar, sidecar_of
from dspark_convert.writing.output import check_output, output_faults
from dspark_convert.writing.partial import Partial, clear_leftovers, publish
from dspark_convert.writing.signals import held_signals

Stamp = tuple[int, ...] | None


@dataclass(frozen=True)
class Hashing:
    """What is hashed on the way: the ``files``, each of the ``tensors``; ``sidecar`` writes it beside the files."""

    files: bool = False
    tensors: bool = False
    sidecar: bool = False


@dataclass(frozen=True)
class WrittenFile:
    """``sha256`` of all its bytes and of each tensor's, in hexadecimal, and what rounding cost each tensor that
    was rounded, where they were asked for."""

    path: Path
    nbytes: int
    sha256: str | None = None
    tensors: Mapping[str, str] = field(default_factory=dict)
    losses: Mapping[str, Loss] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"path": str(self.path), "bytes": self.nbytes, "sha256": self.sha256}


@dataclass(frozen=True)
class Written:
    """The finished file, or the parts of a split set in order. ``findings`` are warnings about values,
    which only the writing sees, and notes about what lay beside the output."""

    files: tuple[WrittenFile, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def path(self) -> Path:
        """What llama.cpp is given."""
        return self.files[0].path

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)

    @property
    def losses(self) -> dict[str, Loss]:
        return {name: loss for file in self.files for name, loss in file.losses.items()}

    def to_json(self) -> dict[str, Any]:
        """``output`` of ``dspark-convert --json`` (schemas/convert-1.json)."""
        parts = [file.to_json() for file in self.files] if len(self.files) > 1 else []
        tensors = {name: sha256 for file in self.files for name, sha256 in file.tensors.items()}
        return {
            "path": str(self.path),
            "bytes": self.nbytes,
            "sha256": None if parts else self.files[0].sha256,
            **({"parts": parts} if parts else {}),
            **({"tensors": tensors} if tensors else {}),
            **({"losses": {name: loss.to_json() for name, loss in self.losses.items()}} if self.losses else {}),
        }


def write(
    path: Path,
    metadata: Sequence[KV],
    jobs: Sequence[TensorJob],
    *,
    force: bool = False,
    strict: bool = False,
    threads: int | None = None,
    library: Path | None = None,
    hashing: Hashing = Hashing(),
    split_max_size: int | None = None,
    measure: bool = False,
    keep: Iterable[Path] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write ``metadata`` and the tensors of ``jobs`` to ``path``.

    A file larger than ``split_max_size`` bytes becomes a set (``split.part_path``). ``keep`` are files that
    the output must not replace, beside those of the jobs. ``progress`` is called with the bytes done and
    the bytes in all. ``path`` is taken literally; a symbolic link there is replaced, not followed. The
    caller turns SIGTERM into an exception if the temporary files are to be removed then. ``library`` is
    ggml's, for the types that need one (by default what is installed). ``measure`` what rounding costs. The
    bytes depend on ``metadata``, ``jobs`` and ``split_max_size`` alone.

    Raises UsageError if ``path`` cannot be the output, exists without ``force`` or is being written, or
    ``split_max_size`` is too small; InputError for what GGUF cannot hold, a bad source or one that changes
    meanwhile, and values that are not finite (all tensors are looked at first, one finding for each), with
    ``strict`` also for a matrix of zeros; EnvironmentFault if the disk is full or cannot be written.
    """
    sources = sorted({ref.path for job in jobs for ref in job.refs})
    parts = lay_out(path, metadata, jobs, split_max_size)
    old_hashes = _check_outputs(parts, [*sources, *keep], force, hashing)
    before = {source: _stamp(source) for source in sources}
    found = [*clear_leftovers(path, force), *other_sets(path, parts)]
    total = sum(part.nbytes for part in parts)
    _check_space(path, total)
    partials = [Partial(path) for _ in parts]
    sidecars = [Partial(path) for _ in parts if hashing.sidecar]
    if len(parts) > 1:
        require_open_files(str(path), len(partials) + len(sidecars), "give a larger --split-max-size")
    check = NonFinite()
    files = []
    zero: list[Finding] = []
    done = 0

    def advance(nbytes: int) -> None:
        if progress:
            progress(done + nbytes, total)

    try:
        for part, partial in zip(parts, partials, strict=True):
            with output_faults(part.path):
                partial.create(part.nbytes)
        for part, partial in zip(parts, partials, strict=True):
            file, filled = _write_part(part, partial, check, hashing, threads, library, advance, measure=measure)
            files.append(file)
            zero += filled.findings
            done += part.nbytes
            advance(0)
        _refuse_values(path, check, zero, strict)
        _refuse_changed(before)
        for file, partial in zip(files, sidecars, strict=False):
            _write_sidecar(file, partial)
        for part, partial in zip(parts, partials, strict=True):
            with output_faults(part.path):
                os.fsync(partial.descriptor)
        finished = [(partial, part.path) for part, partial in zip(parts, partials, strict=True)]
        hashes = [(partial, sidecar_of(file.path)) for file, partial in zip(files, sidecars, strict=False)]
        with held_signals():
            publish(path, finished, old_hashes, force)
            for sidecar in hashes:
                publish(path, [sidecar], (), force=True)
    finally:
        with held_signals():
            for partial in (*partials, *sidecars):
                partial.discard()
    if old_hashes and not hashing.sidecar:
        found += [_hash_is_gone(old) for old in old_hashes]
    return Written(tuple(files), (*found, *zero))


def _check_outputs(parts: Sequence[Part], inputs: Sequence[Path], force: bool, hashing: Hashing) -> list[Path]:
    """The hash files of earlier outputs in the place of ``parts``, once all may be written."""
    old = []
    for part in parts:
        check_output(part.path, inputs, force)
        sidecar = sidecar_of(part.path)
        exists = os.path.lexists(sidecar)
        if exists or hashing.sidecar:
            check_output(sidecar, inputs, force)
        if exists:
            old.append(sidecar)
    return old


def _write_part(
    part: Part,
    partial: Partial,
    check: NonFinite,
    hashing: Hashing,
    threads: int | None,
    library: Path | None,
    advance: Callable[[int], None],
    *,
    measure: bool,
) -> tuple[WrittenFile, Filled]:
    digest = hashlib.sha256(part.header) if hashing.files or hashing.sidecar else None
    header = memoryview(part.header)
    with output_faults(part.path):
        written = 0
        while written < len(header):
            written += os.pwrite(partial.descriptor, header[written:], written)
    filled = fill(
        partial.descriptor,
        part.jobs,
        part.offsets,
        threads=threads,
        library=library,
        digest=digest,
        tensor_digests=hashing.tensors,
        measure=measure,
        check=check,
        progress=lambda nbytes: advance(len(header) + nbytes),
        path=part.path,
    )
    sha256 = None
    if digest is not None:
        if part.jobs:  # behind the last tensor there is padding, as ggml writes it
            digest.update(bytes(part.nbytes - part.offsets[-1] - part.jobs[-1].nbytes))
        sha256 = digest.hexdigest()
    names = [job.name for job in part.jobs] if hashing.tensors else []
    hashes = dict(zip(names, filled.sha256, strict=False))
    losses = {job.name: loss for job, loss in zip(part.jobs, filled.losses, strict=False) if loss is not None}
    return WrittenFile(part.path, part.nbytes, sha256, hashes, losses), filled


def _refuse_values(path: Path, check: NonFinite, zero: Sequence[Finding], strict: bool) -> None:
    if check:
        findings = check.findings()
        raise InputError(
            f"{path} was not written: values of {len({finding.where for finding in findings})} tensors are NaN, "
            f"infinite, or too large for the output type.",
            findings=findings,
        )
    if zero and strict:
        raise InputError(f"{path} was not written: matrices are all zero, or not exact in BF16.", findings=zero)


def _stamp(source: Path) -> Stamp:
    """What tells a file from its later states; None if it is not there."""
    try:
        status = source.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _refuse_changed(before: Mapping[Path, Stamp]) -> None:
    for source, stamp in before.items():
        now = _stamp(source)
        if now != stamp:
            what = "vanished" if now is None else "changed"
            raise InputError(f"{source} {what} while it was read; convert again when nothing writes to it.")


def _check_space(path: Path, needed: int) -> None:
    with output_faults(path):
        usage = shutil.disk_usage(path.parent)
    # Some network file systems report a size of 0 for "unknown".
    if usage.total and usage.free < needed:
        raise EnvironmentFault(
            f"cannot write {path}: it needs {needed} bytes, and {path.parent} has {usage.free} free."
        )


def _write_sidecar(file: WrittenFile, partial: Partial) -> None:
    assert file.sha256 is not None  # noqa: S101 - Hashing.sidecar has it computed
    data = encode_sidecar(file.path, file.sha256, file.tensors)
    sidecar = sidecar_of(file.path)
    with output_faults(sidecar):
        partial.create(0)
        with os.fdopen(os.dup(partial.descriptor), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())


def _hash_is_gone(sidecar: Path) -> Finding:
    message = f"{sidecar} was removed: it held the hash of the file that was replaced."
    return info("stale-hash", str(sidecar), message, "--sha256 writes the new one")
