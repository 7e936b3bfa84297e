"""What is measured of a process, where the process is made so that the answer is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.measure import Failed, Usage, measure


def usage(tmp_path: Path, code: str) -> Usage:
    return measure([sys.executable, "-S", "-c", code], tmp_path)


#: stays until it has been looked at
WAIT = "import time; time.sleep(0.1)"


def test_memory_of_the_process_and_not_of_its_parent(tmp_path: Path) -> None:
    ballast = bytearray(b"x" * 200_000_000)
    small = usage(tmp_path, WAIT).peak
    assert small < 30_000_000
    held = usage(tmp_path, f"held = b'x' * 50_000_000; {WAIT}").peak - small
    assert 49_000_000 < held < 55_000_000
    del ballast


def test_memory_that_is_given_back_counts(tmp_path: Path) -> None:
    assert usage(tmp_path, f"held = b'x' * 50_000_000; del held; {WAIT}").peak > 50_000_000


def test_children_count(tmp_path: Path) -> None:
    child = f"import sys; held = b'x' * 50_000_000; {WAIT}; sum(range(5_000_000))"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}])"
    used = usage(tmp_path, parent)
    assert used.peak > 55_000_000
    assert used.cpu > usage(tmp_path, "import subprocess").cpu + 0.02


def test_processor_time_is_not_wall_time(tmp_path: Path) -> None:
    slept = usage(tmp_path, "import time; time.sleep(0.5)")
    assert slept.wall > 0.5
    assert slept.cpu < 0.3


def test_bytes_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(5_000_000))
    nothing = usage(tmp_path, WAIT).read
    read = usage(tmp_path, f"held = open('file', 'rb').read(); {WAIT}").read
    assert 5_000_000 <= read - nothing < 5_100_000


def test_a_failure_says_what_the_command_said(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"^exit code 3: out of cheese$"):
        usage(tmp_path, "import sys; print('out of cheese', file=sys.stderr); sys.exit(3)")
