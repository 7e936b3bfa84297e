"""The threads that fill a file: each takes the next unit, reads and transforms it, writes it at its offset.

Memory is that of a few units: a unit is begun only when one of a fixed number of readers (with their
buffers) is free, in the order of the file, and a reader is free again when its bytes are written and,
where there are digests, hashed, which one thread does in the order of the file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dspark_convert.errors import EnvironmentFault
from dspark_convert.jobs import TensorJob
from dspark_convert.tensors.nonfinite import NonFinite
from dspark_convert.tensors.stream import Reader
from dspark_convert.tensors.units import Unit
from dspark_convert.writing.digests import Digests
from dspark_convert.writing.output import output_faults
from dspark_convert.writing.writeback import Writeback

#: how often progress is told
TICK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Task:
    """Unit ``unit`` of job ``number``, the ``serial``-th of all, which ``reader`` is to read."""

    serial: int
    number: int
    unit: Unit
    reader: Reader


class Crew:
    """The threads and what they share, which ``_changed`` guards."""

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
        digests: Digests | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        """Do all ``units`` (with the numbers of their jobs); raise the first fault in their order."""
        self._units, self._free, self._hashing = units, readers, digests is not None
        crew = [threading.Thread(target=self._write_all) for _ in range(threads)]
        if digests is not None:
            crew.append(threading.Thread(target=self._hash_all, args=(digests,)))
        try:
            _start(crew)
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
        serial = 0
        try:
            while task := self._claim():
                serial = task.serial
                data = task.reader.read(task.number, self._jobs[task.number], task.unit)
                if not self._check:  # once a value is bad the file is lost, and only the scan goes on
                    self._write(data, self._offsets[task.number] + task.unit.offset)
                self._finish(task, data)
        except BaseException as fault:
            self._fail(serial, fault)

    def _finish(self, task: _Task, data: NDArray[np.uint8]) -> None:
        with self._changed:
            self._done_bytes += task.unit.nbytes
            due = self._writeback.due(self._offsets[0] + self._done_bytes)
            if self._hashing:
                self._to_hash[task.serial] = task, data
                self._changed.notify_all()
            else:
                self._free.append(task.reader)
        if due is not None and not self._check:
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

    def _hash_all(self, digests: Digests) -> None:
        serial = 0
        try:
            while following := self._next_to_hash(serial):
                task, data = following
                if not self._check:
                    digests.update(task.number, self._offsets[task.number] + task.unit.offset, data.data)
                serial += 1
                with self._changed:
                    self._free.append(task.reader)
                    self._changed.notify_all()
        except BaseException as fault:
            self._fail(serial, fault)

    def _next_to_hash(self, serial: int) -> tuple[_Task, NDArray[np.uint8]] | None:
        """Unit ``serial`` once it is written; None if there is none, or all is to stop."""

        def known() -> bool:
            return self._stop or serial in self._to_hash or (self._exhausted and serial == self._claimed)

        with self._changed:
            self._changed.wait_for(known)
            return None if self._stop else self._to_hash.pop(serial, None)


def _start(crew: list[threading.Thread]) -> None:
    try:
        for thread in crew:
            thread.start()
    except RuntimeError:
        raise EnvironmentFault(f"the system lets no {len(crew)} threads start; use fewer with --threads.") from None
