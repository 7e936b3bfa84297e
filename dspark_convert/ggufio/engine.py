"""Fills the tensors of a GGUF file: threads read, transform and write units, each at its own offset.

The bytes do not depend on the number of threads or on who is first. Memory is that of a few units,
whatever the size of the draft: a unit is begun only when one of a fixed number of readers (with
their buffers) is free, in the order of the file, and a reader is free again when its bytes are
written and, where a digest is asked for, hashed, which one thread does in the order of the file.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dspark_convert.findings import Finding
from dspark_convert.ggufio.output import output_faults
from dspark_convert.ggufio.types import BLOCKS
from dspark_convert.ggufio.writeback import Writeback
from dspark_convert.jobs import TensorJob
from dspark_convert.source.files import SourceFiles
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.quantize import NEED_LIBRARY, quantize
from dspark_convert.tensors.remarks import Remarks
from dspark_convert.tensors.stream import Reader
from dspark_convert.tensors.units import UNIT_BYTES, Unit, require_agreement, units

#: more threads than this wait for the disk, not for each other's work
MAX_THREADS = 8
#: readers beyond one a thread: how far the threads may run ahead of the hashing
AHEAD = 4
#: how often progress is told
TICK_SECONDS = 0.1


class Digest(Protocol):
    """A hashlib object."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class Filled:
    """``findings`` are warnings about values; ``sha256`` are the tensors' hashes in hexadecimal, in the
    order of the jobs, if they were asked for."""

    findings: tuple[Finding, ...] = ()
    sha256: tuple[str, ...] = ()


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
    unit_bytes: int = UNIT_BYTES,
) -> Filled:
    """Write the tensors of ``jobs`` into ``descriptor``, an empty file, each at its absolute offset.

    ``offsets`` ascend. What lies between two tensors stays a hole, which reads as the zeros of the
    padding; ``digest`` gets it with them, from the first byte of the first tensor to the last byte
    of the last: what lies before and behind is the caller's. ``progress`` is called in the caller's
    thread with the bytes of tensors done. ``path`` names the file in messages. Values that are
    bad go into ``check``: nothing more is written then, and only the scan goes on. ``library`` is ggml's,
    for the types that need one (by default what is installed).

    Raises InputError if a job and its sources do not agree (before anything is written), or for a
    source that is gone or too short; EnvironmentFault if a source cannot be read, the output not be
    written, or the library not be used. No thread is left when this returns, however it does.
    """
    if not jobs:
        return Filled()
    for job in jobs:
        require_agreement(job)
    threads = threads or default_threads()
    digests = _Digests(digest, tensor_digests, offsets[0]) if digest is not None or tensor_digests else None
    for ggml_type in {job.type for job in jobs} & NEED_LIBRARY:  # none is found out before anything is written
        quantize(np.zeros((1, BLOCKS[ggml_type][0]), np.float32), ggml_type, library=library)
    first, remarks = check.expect(len(jobs)), Remarks()
    todo = ((number, unit) for number, job in enumerate(jobs) for unit in units(job, unit_bytes))
    with SourceFiles() as files:
        readers = [Reader(files, check, first, remarks, library) for _ in range(threads + (AHEAD if digests else 0))]
        _Work(descriptor, jobs, offsets, check, path).run(todo, readers, threads, digests, progress)
    each = tuple(digests.tensor(number) for number in range(len(jobs))) if digests and tensor_digests else ()
    return Filled(tuple(remarks.findings(jobs)), each)


@dataclass(frozen=True, slots=True)
class _Task:
    """Unit ``unit`` of job ``number``, the ``serial``-th of all, which ``reader`` is to read."""

    serial: int
    number: int
    unit: Unit
    reader: Reader


class _Work:
    """What the threads of one ``fill`` share; ``_changed`` guards it."""

    def __init__(
        self, descriptor: int, jobs: Sequence[TensorJob], offsets: Sequence[int], check: NonFinite, path: Path
    ) -> None:
        self._descriptor, self._jobs, self._offsets = descriptor, jobs, offsets
        self._check, self._path = check, path
        self._changed = threading.Condition()
        self._writeback = Writeback(descriptor, offsets[0], offsets[-1] + jobs[-1].nbytes)
        self._units: Iterator[tuple[int, Unit]] = iter(())
        self._free: list[Reader] = []
        self._claimed = 0
        self._done_bytes = 0
        self._stop = self._exhausted = self._hashing = False
        self._fault: tuple[int, BaseException] | None = None
        self._to_hash: dict[int, tuple[_Task, NDArray[np.uint8]]] = {}

    def run(
        self,
        units: Iterator[tuple[int, Unit]],
        readers: list[Reader],
        threads: int,
        digests: _Digests | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        """Do all ``units`` (with the numbers of their jobs); raise the first fault in their order."""
        self._units, self._free, self._hashing = units, readers, digests is not None
        crew = [threading.Thread(target=self._write_all) for _ in range(threads)]
        if digests is not None:
            crew.append(threading.Thread(target=self._hash_all, args=(digests,)))
        try:
            for thread in crew:
                thread.start()
            for thread in crew:
                while thread.is_alive():
                    thread.join(TICK_SECONDS)
                    if progress:
                        progress(self._done_bytes)
        finally:
            self._end(crew)
        if self._fault:
            raise self._fault[1]
        if progress:
            progress(self._done_bytes)

    def _end(self, crew: list[threading.Thread]) -> None:
        """Wait until every thread is through: the descriptor may be closed then, not before."""
        interrupt: BaseException | None = None
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        for thread in crew:
            while thread.is_alive():
                try:
                    thread.join()
                except BaseException as again:  # a second Ctrl-C
                    interrupt = again
        if interrupt:
            raise interrupt

    def _write_all(self) -> None:
        while task := self._claim():
            try:
                job = self._jobs[task.number]
                data = task.reader.read(task.number, job, task.unit)
                if not self._check:  # once a value is bad the file is lost, and only the scan goes on
                    self._write(data, self._offsets[task.number] + task.unit.offset)
            except BaseException as fault:
                self._fail(task.serial, fault)
                return
            with self._changed:
                self._done_bytes += task.unit.nbytes
                due = self._writeback.due(self._offsets[0] + self._done_bytes)
                if self._hashing:
                    self._to_hash[task.serial] = task, data
                    self._changed.notify_all()
                else:
                    self._free.append(task.reader)
            if due is not None:
                self._writeback.tell(due)

    def _claim(self) -> _Task | None:
        """The next unit, once a reader is free; None if there is none, or all is to stop.

        Whoever has claimed a unit has all that it needs to finish it, so nobody waits for ever.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stop or self._free)
            following = None if self._stop else next(self._units, None)
            if following is None:
                self._exhausted = True
                self._changed.notify_all()
                return None
            task = _Task(self._claimed, *following, self._free.pop())
            self._claimed += 1
            return task

    def _write(self, data: NDArray[np.uint8], offset: int) -> None:
        view = data.data
        with output_faults(self._path):
            while view:  # one write may take less
                done = os.pwrite(self._descriptor, view, offset)
                view, offset = view[done:], offset + done

    def _fail(self, serial: int, fault: BaseException) -> None:
        """Of several faults the one that a single thread would meet is told."""
        with self._changed:
            if self._fault is None or serial < self._fault[0]:
                self._fault = serial, fault
            self._stop = True
            self._changed.notify_all()

    def _hash_all(self, digests: _Digests) -> None:
        serial = 0

        def ready() -> bool:
            return self._stop or serial in self._to_hash or (self._exhausted and serial == self._claimed)

        while True:
            with self._changed:
                self._changed.wait_for(ready)
                if self._stop or serial not in self._to_hash:
                    return
                task, data = self._to_hash.pop(serial)
            if not self._check:
                digests.update(task.number, self._offsets[task.number] + task.unit.offset, data.data)
            serial += 1
            with self._changed:
                self._free.append(task.reader)
                self._changed.notify_all()


class _Digests:
    """The hash of the file, of each tensor, or both; fed in the order of the file."""

    def __init__(self, whole: Digest | None, each: bool, start: int) -> None:
        self._whole, self._each = whole, each
        self._position = start
        self._tensors: dict[int, Digest] = {}

    def update(self, number: int, offset: int, data: memoryview) -> None:
        """``data`` of tensor ``number`` at ``offset`` in the file; what is between it and the last is padding."""
        if self._whole is not None:
            self._whole.update(bytes(offset - self._position))
            self._whole.update(data)
        self._position = offset + len(data)
        if self._each:
            self._tensors.setdefault(number, hashlib.sha256()).update(data)

    def tensor(self, number: int) -> str:
        return self._tensors.get(number, hashlib.sha256()).hexdigest()
