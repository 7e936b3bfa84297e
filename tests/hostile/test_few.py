"""Files with a fault in every few bytes: neither memory nor the screen drowns in findings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dspark_convert.findings import MAX_OF_A_RULE
from dspark_convert.ggufio.cursor import MAX_METADATA_ENTRIES, MAX_TENSORS
from dspark_convert.ggufio.reader import open_gguf
from tests.conftest import Convert
from tests.gguf_bytes import ARRAY, STRING, Builder
from tests.hostile.raw import Raw

B = Builder()


def crowded(fill: Callable[[Raw], None]) -> bytes:
    raw = Raw()
    fill(raw)
    return raw.header()


def many_keys(raw: Raw) -> None:
    for index in range(MAX_METADATA_ENTRIES - len(raw.entries)):
        raw.entries[f"bool {index}"] = B.string(b"\xff%x" % (index % 9000)) + B.pack("IB", 7, 2)


def many_tensors(raw: Raw) -> None:
    for index in range(MAX_TENSORS - len(raw.infos)):
        raw.infos[f"t{index}"] = B.tensor("", (0,), 555, 1)


def strings(raw: Raw) -> None:
    raw.encoded("strings", ARRAY, B.pack("IQ", STRING, 1_000_000) + bytes(8_000_000))


def bools(raw: Raw) -> None:
    raw.encoded("bools", ARRAY, B.pack("IQ", 7, 8_000_000) + bytes(8_000_000))


def arrays(raw: Raw) -> None:
    raw.encoded("arrays", ARRAY, B.pack("IQ", ARRAY, 200_000) + B.pack("IQ", 4, 0) * 200_000)


def long_text(raw: Raw) -> None:
    raw.encoded("text", STRING, B.string(b"\xff" * 6_000_000))


#: how much memory a file of this kind may take, in multiples of its size; beyond what an empty one takes
FULL: dict[str, tuple[Callable[[Raw], None], float]] = {
    "keys": (many_keys, 20),
    "tensors": (many_tensors, 25),
    "strings": (strings, 2),
    "bools": (bools, 2),
    "arrays": (arrays, 2),
    "text": (long_text, 7),
}

MEASURE = """
import re, sys
from dspark_convert.cli.inspect import inspect
from dspark_convert.cli.runner import run
try:
    run(inspect, "dspark-inspect", sys.argv[1:])
finally:
    # getrusage would also count what the parent of this process had.
    print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1], file=sys.stderr)
"""


def peak(path: Path, *flags: str) -> int:
    """Bytes of memory that ``dspark-inspect`` takes at most."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *flags, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    if flags:
        json.loads(done.stdout)
    else:
        assert len(done.stdout) < 5_000_000
    return int(done.stderr.split()[-1]) * 1024


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> int:
    path = tmp_path_factory.mktemp("floor") / "dspark-x.gguf"
    path.write_bytes(Raw().encode())
    return peak(path)


@pytest.mark.parametrize("kind", FULL)
def test_memory_is_a_small_multiple(tmp_path: Path, floor: int, kind: str) -> None:
    fill, multiple = FULL[kind]
    path = tmp_path / "dspark-x.gguf"
    path.write_bytes(crowded(fill))
    used = peak(path) - floor
    print(f"{used:,} bytes, {used / path.stat().st_size:.1f} times the file")
    assert used < multiple * path.stat().st_size + 4_000_000


@pytest.mark.parametrize(("kind", "multiple"), [("bools", 2), ("strings", 4), ("arrays", 3), ("text", 20)])
def test_json_is_written_piece_by_piece(tmp_path: Path, floor: int, kind: str, multiple: float) -> None:
    path = tmp_path / "dspark-x.gguf"
    path.write_bytes(crowded(FULL[kind][0]))
    used = peak(path, "--json") - floor
    print(f"{used:,} bytes, {used / path.stat().st_size:.1f} times the file")
    assert used < multiple * path.stat().st_size + 4_000_000


def test_few_findings_of_each_rule_are_told(tmp_path: Path, inspect: Convert) -> None:
    path = tmp_path / "dspark-x.gguf"
    path.write_bytes(crowded(many_keys))
    with open_gguf(path) as file:
        rules = [finding.rule for finding in file.findings]
    assert rules.count("bad-utf8") == rules.count("odd-bool") == MAX_OF_A_RULE + 1
    ended = inspect(path)
    more = MAX_METADATA_ENTRIES - len(Raw().entries) - MAX_OF_A_RULE
    assert f"file: there are {more:,} more findings of this kind" in ended.out


def test_a_long_name_does_not_widen_every_line(tmp_path: Path, inspect: Convert) -> None:
    raw = Raw()
    raw.put("k" * 60_000, 4, 1)
    raw.append("t" * 60_000, (8,))
    path = tmp_path / "dspark-x.gguf"
    path.write_bytes(raw.encode())
    ended = inspect("--tensors", path)
    assert len(ended.out) < 50_000
    assert "(60,000 characters)" in ended.out


def test_more_is_not_read(tmp_path: Path, inspect: Convert) -> None:
    path = tmp_path / "x.gguf"
    for count, what in ((MAX_METADATA_ENTRIES + 1, "16,385 metadata"), (17_000_000, "17,000,000 metadata")):
        path.write_bytes(B.file([], kv_count=count))
        with path.open("r+b") as stream:
            stream.truncate(count * 13 + 24)  # zeros, that take no room
        assert f"{what} entries are announced; more than 16,384 are not read" in inspect(path).err
    head = B.file([B.string("k") + B.pack("IIQ", ARRAY, STRING, 2**24 + 1)])
    path.write_bytes(head)
    with path.open("r+b") as stream:
        stream.truncate(len(head) + 8 * (2**24 + 1))
    assert "more than 16,777,216, which are not read" in inspect(path).err
