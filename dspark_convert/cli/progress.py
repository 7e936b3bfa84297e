"""How far a long task is: a bar on a terminal, elsewhere a plain line now and then."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Protocol

from dspark_convert.cli.text import human_bytes, safe

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: a task that is done before this draws no bar; what loads the bar takes a tenth of a second
BAR_SECONDS = 0.5

#: between two lines, and before the first: a short task prints none
LINE_SECONDS = 10.0

#: a line has to tell of this share of the whole, or be LONG_SECONDS after the one before
LINE_SHARE = 0.05
LONG_SECONDS = 60.0

Clock = Callable[[], float]


class _View(Protocol):
    def show(self, done: int) -> None: ...

    def close(self, *, complete: bool) -> None: ...


@contextmanager
def progress(label: str, total: int, stream: IO[str], clock: Clock = time.monotonic) -> Iterator[Callable[[int], None]]:
    """Show on ``stream`` how far a task of ``total`` > 0 bytes is.

    Yields a function that takes the bytes just done; several threads may call it.
    """
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    view: _View = (_Bar if terminal else _Lines)(safe(label), total, stream, clock)
    lock = threading.Lock()
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        with lock:
            done += count
            view.show(done)

    complete = False
    try:
        yield advance
        complete = True
    finally:
        view.close(complete=complete)


class _Lines:
    """Bytes, rate since the line before, and what remains at that rate; on success a last line if there was one."""

    def __init__(self, label: str, total: int, stream: IO[str], clock: Clock) -> None:
        self._label, self._total, self._stream, self._clock = label, total, stream, clock
        self._start = self._told = clock()
        self._told_bytes = 0

    def show(self, done: int) -> None:
        now = self._clock()
        seconds, fresh = now - self._told, done - self._told_bytes
        due = seconds >= LONG_SECONDS or (seconds >= LINE_SECONDS and fresh >= LINE_SHARE * self._total)
        if not due or done >= self._total:
            return
        rate = fresh / seconds
        left = f", {_duration((self._total - done) / rate)} left" if rate > 0 else ""
        share = f"{human_bytes(done)} of {human_bytes(self._total)} ({100 * done // self._total} %)"
        self._print(f"{self._label}: {share}, {human_bytes(round(rate))}/s{left}")
        self._told, self._told_bytes = now, done

    def close(self, *, complete: bool) -> None:
        if complete and self._told != self._start:
            seconds = self._clock() - self._start
            rate = human_bytes(round(self._total / seconds))
            self._print(f"{self._label}: {human_bytes(self._total)} in {_duration(seconds)}, {rate}/s")

    def _print(self, line: str) -> None:
        # The task does not fail because nobody reads how far it is.
        with contextlib.suppress(OSError):
            print(line, file=self._stream, flush=True)


class _Bar:
    """rich's bar, which disappears at the end."""

    def __init__(self, label: str, total: int, stream: IO[str], clock: Clock) -> None:
        self._label, self._total, self._stream, self._clock = label, total, stream, clock
        self._start = clock()
        self._bar: tuple[Progress, TaskID] | None = None

    def show(self, done: int) -> None:
        if self._bar is None:
            if self._clock() - self._start < BAR_SECONDS:
                return
            self._bar = self._drawn()
        bar, task = self._bar
        bar.update(task, completed=done)

    def close(self, *, complete: bool) -> None:  # noqa: ARG002 - it goes away either way
        if self._bar is not None:
            self._bar[0].stop()

    def _drawn(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=self._stream),
            transient=True,
            get_time=self._clock,
        )
        task = bar.add_task(self._label, total=self._total)
        bar.start()
        return bar, task


def _duration(seconds: float) -> str:
    """ "7 s", "3 min 05 s" or "2 h 04 min"."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
