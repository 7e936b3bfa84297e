"""Fills the tensors of a GGUF file: threads read, transform and write units, each at its own offset.

The bytes do not depend on the number of threads or on who is first, nor memory on the size of the draft.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dspark_convert.findings import Finding
from dspark_convert.ggufio.types import BLOCKS
from dspark_convert.jobs import TensorJob
from dspark_convert.source.files import SourceFiles
from dspark_convert.tensors.agreement import require_agreement
from dspark_convert.tensors.losses import Loss, Losses
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.quantize import NEED_LIBRARY, quantize
from dspark_convert.tensors.remarks import Remarks
from dspark_convert.tensors.stream import Reader
from dspark_convert.tensors.units import UNIT_BYTES, moved, units
from dspark_convert.writing.crew import Crew
from dspark_convert.writing.digests import Digest, Digests
from dspark_convert.writing.writeback import reserve

#: more of them would only wait for the disk
MAX_THREADS = 8
#: readers beyond one a thread: how far the threads may run ahead of the hashing
AHEAD = 4
#: more than a unit's arrays take, and less than what glibc never keeps (32 MiB)
KEPT_BYTES = 24 << 20


@dataclass(frozen=True)
class Filled:
    """``findings`` are warnings about values; ``sha256`` are the tensors' hashes in hexadecimal and ``losses``
    what rounding cost them (None: the bytes were moved), in the order of the jobs, if they were asked for."""

    findings: tuple[Finding, ...] = ()
    sha256: tuple[str, ...] = ()
    losses: tuple[Loss | None, ...] = ()


def default_threads() -> int:
    """The cores that this process may use, at most MAX_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_THREADS)


def fill(
    descriptor: int,
    jobs: Sequence[TensorJob],
    offsets: Sequence[int],
    *,
    threads: int | None = None,
    digest: Digest | None = None,
    tensor_digests: bool = False,
    check: NonFinite,
    progress: Callable[[int], None] | None = None,
    path: Path,
    library: Path | None = None,
    measure: bool = False,
    unit_bytes: int = UNIT_BYTES,
) -> Filled:
    """Write the tensors of ``jobs`` into ``descriptor``, an empty file, each at its absolute offset.

    ``offsets`` ascend. What lies between two tensors stays a hole, which reads as the zeros of the
    padding; ``digest`` gets it with them, from the first byte of the first tensor to the last byte
    of the last: what lies before and behind is the caller's. ``progress`` is called in the caller's
    thread with the bytes of tensors done. ``path`` names the file in messages. Values that are
    bad go into ``check``: nothing more is written then, and only the scan goes on. ``library`` is ggml's,
    for the types that need one (by default what is installed). ``measure`` the losses.

    Raises InputError if a job and its sources do not agree (before anything is written), or for a
    source that is gone or too short; EnvironmentFault if a source cannot be read, the output not be
    written, or the library not be used. No thread is left when this returns, however it does.
    """
    if not jobs:
        return Filled()
    for job in jobs:
        require_agreement(job)
    threads = threads or default_threads()
    digests = Digests(digest, tensor_digests, offsets[0]) if digest is not None or tensor_digests else None
    if digests:  # one thread hashes, and what it has not reached stays in memory
        threads = min(threads, MAX_THREADS)
    made = {job.type for job in jobs if not all(moved(job, source) for source in job.inputs)}
    for ggml_type in made & NEED_LIBRARY:  # that there is none is found out before anything is written
        quantize(np.zeros((1, BLOCKS[ggml_type][0]), np.float32), ggml_type, library=library)
    _settle_memory()
    reserve(descriptor, offsets[-1] + jobs[-1].nbytes)
    first, remarks, losses = check.expect(len(jobs)), Remarks(), Losses() if measure else None
    todo = ((number, unit) for number, job in enumerate(jobs) for unit in units(job, unit_bytes))
    with SourceFiles() as files:
        count = threads + (AHEAD if digests else 0)
        readers = [Reader(files, check, first, remarks, library, losses) for _ in range(count)]
        Crew(descriptor, jobs, offsets, check, path).run(todo, readers, threads, digests, progress)
    each = tuple(digests.tensor(number) for number in range(len(jobs))) if digests and tensor_digests else ()
    lost = tuple(losses.of(number) for number in range(len(jobs))) if losses else ()
    return Filled(tuple(remarks.findings(jobs)), each, lost)


def _settle_memory() -> None:
    """Have glibc give back what planning has freed, then keep it from giving each unit's arrays back to the
    kernel, only to get them again page by page.

    It stops that up to the size of the largest block that was ever freed (mallopt(3),
    M_MMAP_THRESHOLD); this one is never touched, so it takes no memory. Threefold for MXFP4.
    """
    with contextlib.suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    np.empty(KEPT_BYTES, np.uint8)
