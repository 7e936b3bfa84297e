"""JSON from strangers: read with bounds, or refused in one sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dspark_convert.errors import InputError
from dspark_convert.source.jsonfile import MAX_JSON_DEPTH, disguised, parse_object, read_object


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return '{"a":' + opening * (depth - 1) + "1" + closing * (depth - 1) + "}"


@pytest.mark.parametrize(
    "text",
    [
        r'{"\\": "\"", "\\\"": ["\\\\", "a\\"], "": ""}',
        "{}",
        '\ufeff{"a": 1}',
        ' {"a": [1, {"b": null}]}\n',
        '{"a": NaN}',
        '{"ü": "日"}',
        nested(MAX_JSON_DEPTH),
    ],
)
def test_objects(text: str) -> None:
    wanted = json.loads(text.lstrip("\ufeff"))
    assert str(parse_object(text.encode(), "x")) == str(wanted)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[1]", "list, expected an object"),
        (b"1", "int, expected an object"),
        (b"null", "NoneType, expected an object"),
        (b'{"a": 1,}', "at line 1, column 9"),
        (b'{"a":\n  tru}', "at line 2, column 3"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 1} x', "Extra data at line 1, column 10"),
        (b'{"a": "\xff"}', "not UTF-8 text (byte 7)"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b'{"a": 1, "b": 2, "a": 3}', "key 'a' stands there twice"),
        (b'{"x": {"a": 1, "a": 1}}', "key 'a' stands there twice"),
        (b'{"x": [[{"a": "b", "a": {"c": "d"}}]]}', "key 'a' stands there twice"),
        (rb'{"\\": "\"", "\u005c": "\\\""}', r"key '\\' stands there twice"),
        (b'{"a": ' + b"9" * 5000 + b"}", "more digits"),
        (nested(MAX_JSON_DEPTH + 1).encode(), "100 levels"),
        (nested(MAX_JSON_DEPTH + 1, '{"b":', "}").encode(), "100 levels"),
        (nested(100_000).encode(), "nests"),
        (nested(100_000, '{"b":', "}").encode(), "nests"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_refusals(data: bytes, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_object(data, "the-file")
    message = str(caught.value)
    assert says in message
    assert message.startswith("the-file ")
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 300


def test_size_is_bounded_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}" + " " * 98)
    assert read_object(path, limit=100) == {}
    with path.open("ab") as file:
        file.truncate(2 << 30)
    with pytest.raises(InputError, match="2147483648 bytes"):
        read_object(path)


def test_a_file_that_is_not_there_or_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_object(tmp_path / "x.json")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_object(tmp_path)


def test_a_device_is_not_read(tmp_path: Path) -> None:
    # /dev/zero would never end; this one ends at once where it is read after all
    (tmp_path / "x.json").symlink_to(os.devnull)
    with pytest.raises(InputError, match="no regular file"):
        read_object(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"),
        (b"\xef\xbb\xbf\n version https://git-lfs", "a Git LFS pointer"),
        (b"<!DOCTYPE HTML>", "an HTML page"),
        (b"<HTML>", "an HTML page"),
        (b'{"error":"x"}', "an error message of the hub"),
        (b"Entry not found", "an error message of the hub"),
    ],
)
def test_disguises(head: bytes, what: str) -> None:
    assert (disguised(head) or "").startswith(what)


@pytest.mark.parametrize("head", [b"{", b'{"errors": 1}', b"\x10\0\0\0\0\0\0\0{", b" ", b"<", b"versions"])
def test_what_is_no_disguise(head: bytes) -> None:
    assert disguised(head) is None
