from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from dspark_convert.writing.writeback import CHUNK_BYTES, DROP_BEHIND, DROP_FROM, START_BEHIND, Writeback, reserve

STARTED = range(96, 2 * DROP_FROM, CHUNK_BYTES)


class Kernel:
    """Where the chunks begin that are to be written, and those to be dropped, while a file grows to ``end``."""

    def __init__(self, end: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[int] = []
        self.dropped: list[int] = []
        monkeypatch.setattr(ctypes, "CDLL", lambda _: self)
        monkeypatch.setattr(os, "posix_fadvise", lambda _fd, begin, _nbytes, _advice: self.dropped.append(begin))
        growing = Writeback(-1, 96, end)
        for position in range(96, end, step):
            if (due := growing.due(position)) is not None:
                assert due + CHUNK_BYTES + START_BEHIND <= position
                growing.tell(due)

    def sync_file_range(self, _fd: int, begin: ctypes.c_int64, nbytes: ctypes.c_int64, flags: int) -> None:
        assert (nbytes.value, flags) == (CHUNK_BYTES, 2)  # SYNC_FILE_RANGE_WRITE: start, and wait for nothing
        self.started.append(begin.value)


def test_every_chunk_is_told_once_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    end = DROP_FROM
    kernel = Kernel(end, 5_000_000, monkeypatch)
    assert kernel.started == list(STARTED[: len(kernel.started)])
    assert end - kernel.started[-1] < 2 * CHUNK_BYTES + START_BEHIND + 5_000_000
    assert kernel.dropped == []


def test_a_large_file_gives_its_pages_back(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(96 + DROP_FROM, 1 << 20, monkeypatch)
    assert kernel.started == list(STARTED[: len(kernel.started)])
    assert kernel.dropped == [begin - DROP_BEHIND for begin in kernel.started[DROP_BEHIND // CHUNK_BYTES :]]


def test_a_small_file_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Kernel(START_BEHIND + CHUNK_BYTES, 1 << 20, monkeypatch).started == []


def test_what_takes_no_advice_is_written_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    Writeback(write, 0, 1).tell(0)  # ESPIPE
    os.close(read)
    os.close(write)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # another system
    Writeback(-1, 0, 1).tell(0)


def test_blocks_are_set_aside_and_nothing_else_changes(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w+b") as file:
        file.write(b"abc")
        file.flush()
        reserve(file.fileno(), 1 << 20)
        assert os.fstat(file.fileno()).st_blocks * 512 >= 1 << 20
        assert (tmp_path / "x").read_bytes() == b"abc"


def test_what_has_no_blocks_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    reserve(write, 1 << 20)  # ESPIPE
    os.close(read)
    os.close(write)
    reserve(-1, 1 << 20)  # EBADF
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # another system
    reserve(-1, 1 << 20)
