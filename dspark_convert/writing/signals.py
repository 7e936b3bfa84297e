"""A few steps that no signal may come between: names given to finished files, temporary files removed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: what asks a process to end
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_signals() -> Iterator[None]:
    """Keep back what asks this process to end until the block is through.

    Only for blocks of milliseconds. In other threads than the main one Python lets no signal in anyway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        came.append(signum)

    before = {}
    try:
        for number in _ENDING:
            handler = signal.getsignal(number)
            if handler is not None:  # not Python's: it could not be put back
                before[number] = handler
                signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for signum in came:
            signal.raise_signal(signum)
