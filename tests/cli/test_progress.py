"""What a long task says of itself, by a clock that the test sets."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence

import pytest

from dspark_convert.cli.progress import progress

GB = 10**9


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    """A pipe that nobody reads."""

    def write(self, text: str, /) -> int:  # noqa: ARG002
        raise BrokenPipeError


def lines(total: int, steps: Sequence[tuple[float, int]], stream: io.StringIO | None = None) -> list[str]:
    """What is printed if, after each so many seconds, so many bytes more are done."""
    clock, stream = Clock(), stream or io.StringIO()
    with progress("writing", total, stream, clock) as advance:
        for seconds, count in steps:
            clock.now += seconds
            advance(count)
    return stream.getvalue().splitlines()


def test_a_line_has_bytes_rate_and_remaining_time() -> None:
    told = lines(4 * GB, [(10, GB), (10, GB), (10, 2 * GB)])
    assert told == [
        "writing: 1 GB of 4 GB (25 %), 100 MB/s, 30 s left",
        "writing: 2 GB of 4 GB (50 %), 100 MB/s, 20 s left",
        "writing: 4 GB in 30 s, 133 MB/s",
    ]


def test_the_rate_is_of_late() -> None:
    assert lines(10 * GB, [(10, GB), (20, 4 * GB)])[1] == "writing: 5 GB of 10 GB (50 %), 200 MB/s, 25 s left"


def test_a_short_task_says_nothing() -> None:
    assert lines(GB, [(1, GB // 10)] * 9 + [(0.9, GB // 10)]) == []


def test_lines_are_ten_seconds_apart() -> None:
    # 100 s in steps of 1 s: at 10, 20, … 90 and the end
    assert len(lines(100 * GB, [(1, GB)] * 100)) == 10


def test_a_long_task_says_something_a_minute() -> None:
    # an hour: 5 % are three minutes
    told = lines(3600 * GB, [(1, GB)] * 3600)
    assert len(told) == 60
    assert told[0] == "writing: 60 GB of 3.6 TB (1 %), 1 GB/s, 59 min 00 s left"
    assert told[-1] == "writing: 3.6 TB in 1 h 00 min, 1 GB/s"


def test_a_stalled_task_has_no_remaining_time() -> None:
    assert lines(10, [(10, 5), (60, 0)])[1] == "writing: 5 B of 10 B (50 %), 0 B/s"


def test_a_task_that_fails_says_no_more() -> None:
    clock, stream = Clock(), io.StringIO()
    with pytest.raises(ZeroDivisionError), progress("writing", 10, stream, clock) as advance:
        clock.now += 10
        advance(5)
        raise ZeroDivisionError
    assert len(stream.getvalue().splitlines()) == 1


def test_a_label_cannot_forge_a_line() -> None:
    clock, stream = Clock(), io.StringIO()
    with progress("a\nb\x1b[2J", 10, stream, clock) as advance:
        clock.now += 10
        advance(5)
    assert stream.getvalue().startswith("a\\nb\\x1b[2J: 5 B of 10 B")


def test_a_closed_stderr_stops_nothing() -> None:
    lines(10, [(10, 5), (10, 5)], Closed())


def test_threads_lose_no_byte() -> None:
    clock, stream = Clock(), io.StringIO()
    with progress("writing", 100_000, stream, clock) as advance:

        def work(call: Callable[[int], None]) -> None:
            for _ in range(10_000):
                call(1)

        threads = [threading.Thread(target=work, args=(advance,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clock.now += 10
        advance(10_000)
    assert stream.getvalue().startswith("writing: 50 kB of 100 kB (50 %)")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def bar(stream: Terminal, steps: Sequence[tuple[float, int]]) -> str:
    clock = Clock()
    with progress("write [b]", 4 * GB, stream, clock) as advance:
        for seconds, count in steps:
            clock.now += seconds
            advance(count)
    return stream.getvalue()


def test_a_terminal_has_a_bar(terminal: Terminal) -> None:
    shown = bar(terminal, [(1, GB), (1, GB), (1, GB)])
    assert "write [b]" in shown
    assert "3.0/4.0 GB" in shown
    assert "1.0 GB/s" in shown
    assert "0:00:01" in shown
    assert shown.endswith("\x1b[1A\x1b[2K"), "the bar stays on the screen"


def test_a_bar_does_not_flash(terminal: Terminal) -> None:
    assert bar(terminal, [(0.1, GB), (0.3, 3 * GB)]) == ""


def test_a_dumb_terminal_has_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert lines(10, [(10, 5)], terminal)[0] == "writing: 5 B of 10 B (50 %), 0 B/s, 10 s left"
