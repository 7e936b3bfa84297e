"""Split sets that lead in circles, to other places or to too many files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dspark_convert.errors import DsparkError
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.ggufio.sniff import map_file
from tests.conftest import Convert
from tests.hostile.raw import Raw, draft, put

INT32, UINT16 = 5, 2


def part(number: int, count: int, tensors: int = 29) -> bytes:
    """The whole draft as one part of a set; the others hold no tensors."""
    raw = Raw()
    for key, kind, value in (
        ("split.no", UINT16, number),
        ("split.count", UINT16, count),
        ("split.tensors.count", INT32, tensors),
    ):
        raw.put(key, kind, value)
    if number:
        raw.infos.clear()
        raw.data_bytes = 0
    return raw.encode()


def name(number: int, count: int) -> str:
    return f"dspark-{number + 1:05d}-of-{count:05d}.gguf"


def write_set(directory: Path, count: int) -> list[Path]:
    paths = [directory / name(number, count) for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(part(number, count))
    return paths


def test_a_good_set(tmp_path: Path, inspect: Convert) -> None:
    first, _ = write_set(tmp_path, 2)
    assert inspect("--strict", first).code == 0


def test_a_set_in_a_circle(tmp_path: Path, inspect: Convert) -> None:
    first, second = write_set(tmp_path, 2)
    second.unlink()
    second.symlink_to(first.name)
    ended = inspect("--strict", first)
    assert ended.code == 1
    assert "says that it is number 0 of 2, expected 1 of 2" in ended.out


def test_links_that_lead_nowhere(tmp_path: Path, inspect: Convert) -> None:
    first, second = write_set(tmp_path, 2)
    second.unlink()
    second.symlink_to(second.name)
    ended = inspect("--strict", first)
    assert ended.code == 1
    assert "1 of its 2 parts are missing" in ended.out


def test_a_part_that_is_something_else(tmp_path: Path, inspect: Convert) -> None:
    first, second = write_set(tmp_path, 2)
    for data, told in ((b"", "is empty"), (b"GGUF", "is cut short"), (draft()[:900], "cut short or damaged")):
        second.write_bytes(data)
        ended = inspect("--strict", first)
        assert (ended.code, told in ended.err) == (3, True), ended
        assert second.name in ended.err
    second.unlink()
    second.mkdir()
    assert inspect(first).code == 3
    second.rmdir()
    second.symlink_to("/dev/zero")
    assert "device or pipe" in inspect(first).err


def test_another_part_than_the_first(tmp_path: Path, inspect: Convert) -> None:
    _, second = write_set(tmp_path, 2)
    ended = inspect(second)
    assert ended.code == 3
    assert f"not the first; give that, {name(0, 2)}" in ended.err


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        ("split.count", UINT16, 65_535),
        ("split.count", 10, 2**64 - 1),
        ("split.count", 11, -(2**63)),
        ("split.count", 8, "2"),
        ("split.count", 7, True),
        ("split.no", 8, "0"),
        ("split.no", 11, -1),
        ("split.tensors.count", 5, -(2**31)),
        ("split.tensors.count", 8, "29"),
    ],
)
def test_numbers_that_make_no_sense(tmp_path: Path, inspect: Convert, key: str, kind: int, value: object) -> None:
    for count in (2, 65_535):
        path = tmp_path / name(0, count)
        path.write_bytes(draft(put("split.count", UINT16, count), put("split.no", UINT16, 0), put(key, kind, value)))
        began = time.process_time()
        assert inspect("--strict", path).code in (0, 1, 3)
        assert time.process_time() - began < 5


def test_more_parts_than_files_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    first, *_ = write_set(tmp_path, 40)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))
    try:
        with (
            monkeypatch.context() as patch,
            pytest.raises(DsparkError, match=r"merge its parts .*, or raise the limit"),
        ):
            patch.setattr(resource, "getrlimit", lambda _: (32, 32))
            open_gguf(first)
        with open_gguf(first) as file:  # which raises the soft limit
            assert not [finding for finding in file.findings if finding.severity == "error"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_that_is_emptied_while_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"")
    with pytest.raises(DsparkError, match="is empty"):
        map_file(path)
