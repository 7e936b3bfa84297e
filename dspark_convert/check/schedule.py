"""Runs cases side by side: as many as there are jobs, and as fit into the memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Condition

from dspark_convert.check.cache import Cache
from dspark_convert.check.checks import Case
from dspark_convert.check.children import Children, Stopped
from dspark_convert.check.results import Result
from dspark_convert.check.steps import run_case
from dspark_convert.errors import writing

#: bytes that a child takes beside what it reads, as measured: an interpreter with numpy, or with PyTorch
BASE, WITH_TORCH = 200 * 10**6, 800 * 10**6
#: of the memory that is free, what all children may take
SHARE = 0.75


def default_jobs() -> int:
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


def free_memory() -> int:
    """Bytes that could be taken now."""
    try:
        with Path("/proc/meminfo").open() as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_of(case: Case) -> int:
    """Bytes that the case takes at most, roughly. Converting and inspecting stream; running maps draft and target
    whole, and PyTorch computes with the checkpoint's weights in 32 bits."""
    check = case.check
    if "validate" not in check.steps:
        return BASE
    draft, target = _size(check.source), _size(check.target_gguf)
    return WITH_TORCH + 2 * (draft + target) + 2 * _size(check.reference)


def run_cases(
    cases: Sequence[Case],
    *,
    jobs: int,
    memory: int,
    cache: Cache | None = None,
    keep: Path | None = None,
    lib: Path | None = None,
    done: Callable[[Result], None] = lambda _result: None,
) -> list[Result]:
    """The results in the order of ``cases``; ``done`` is told each as it comes, from one thread at a time.

    ``keep``: where converted files go and stay (DIR/NAME/OUTTYPE). Whatever ends this early, KeyboardInterrupt
    included, the children are ended and their files removed first.
    """
    children = Children()
    with ExitStack() as stack:
        # In this order on leaving: children end, threads end, files go.
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dspark-check-")))
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        stack.callback(children.stop)
        room = _Room(memory)
        told = Condition()

        def work(case: Case) -> Result:
            key = cache.key(case) if cache is not None else None
            result = cache.load(key, case) if cache is not None and key is not None else None
            if result is None:
                with room.of(memory_of(case)):
                    directory = (keep or root) / case.check.name / case.outtype
                    with writing(directory):
                        directory.mkdir(parents=True, exist_ok=True)
                    result = run_case(case, children, directory, lib)
                    if keep is None:
                        shutil.rmtree(directory)
                        result = replace(result, output=None)
                # Not if an input has changed meanwhile: it is not known which of both was looked at.
                if cache is not None and key is not None and cache.anew().key(case) == key:
                    cache.store(key, result)
            with told:
                done(result)
            return result

        futures = [pool.submit(work, case) for case in cases]
        try:
            return [future.result() for future in futures]
        except BaseException:
            room.close()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Room:
    """So many bytes at once; who asks for more than there are waits until nobody has any."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._closed = False
        self._changed = Condition()

    @contextmanager
    def of(self, size: int) -> Iterator[None]:
        """Raises Stopped after ``close``."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._taken or self._taken + size <= self._size)
            if self._closed:
                raise Stopped
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _size(path: Path | None) -> int:
    if path is None or not path.exists():
        return 0
    files = [path] if path.is_file() else [f for f in path.iterdir() if f.suffix == ".safetensors"]
    return sum(file.stat().st_size for file in files)
