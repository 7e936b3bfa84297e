"""Bounded reading of the JSON files that strangers write: config.json, indexes, tokenizers."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError

#: config.json and index files are kilobytes to a few megabytes; more is not what it claims to be
MAX_JSON_BYTES = 64 * 2**20
#: no published file nests deeper than 10; Python's parser recurses
MAX_JSON_DEPTH = 100
#: of a file, to see whether it is something else
DISGUISE_BYTES = 512


class _KeyTwice(ValueError):
    """The message names the key."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _KeyTwice(f"key {key!r} stands there twice")
            seen.add(key)
    return result


def parse_object(text: str | bytes, where: str) -> dict[str, Any]:
    """The JSON object in ``text``; a BOM is accepted.

    Raises InputError naming ``where`` with line and column for bad syntax, a duplicate key,
    too deep nesting, or a top level that is no object.
    """
    if isinstance(text, bytes):
        text = _decoded(text, where)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as e:
        raise InputError(
            f"{where} is not valid JSON: {e.msg} at line {e.lineno}, column {e.colno}; repair or fetch it again."
        ) from None
    except RecursionError:
        raise InputError(f"{where} nests too deeply to be what it claims to be.") from None
    except ValueError:  # what Python refuses to turn into an int
        raise InputError(f"{where} holds a number of more digits than any value needs.") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} holds a JSON {type(value).__name__}, expected an object.")
    strings = _count_strings(value)
    if strings is None:
        raise InputError(f"{where} nests more than {MAX_JSON_DEPTH} levels deep.")
    # Of a key that stands there twice one is left, so that strings are missing: to look for the key in
    # each object as it is read would take longer than all the reading.
    if strings != _count_quoted(text):
        try:
            json.loads(text, object_pairs_hook=_unique)
        except _KeyTwice as e:
            raise InputError(f"{where} is ambiguous: {e}; keep one of them.") from None
    return value


def _count_strings(value: dict[str, Any]) -> int | None:
    """How many strings ``value`` holds, keys with them; None if it nests more than MAX_JSON_DEPTH deep."""
    strings = 0
    level: list[Any] = [value]
    for _ in range(MAX_JSON_DEPTH):
        strings += sum(len(item) for item in level if type(item) is dict)
        # In few expressions: a tokenizer holds 150,000 lists.
        children = [child for item in level for child in (item.values() if type(item) is dict else item)]
        strings += list(map(type, children)).count(str)
        level = [child for child in children if type(child) is dict or type(child) is list]
        if not level:
            return strings
    return None


def _count_quoted(text: str) -> int:
    """How many strings there are in the JSON ``text``."""
    text = text.replace(r"\\", "")  # a quote is part of a string behind an odd number of backslashes
    return (text.count('"') - text.count(r"\"")) // 2


def read_object(path: Path, *, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The JSON object in the file ``path``; raises InputError as ``parse_object`` does."""
    return parse_object(_decoded(read_bytes(path, limit=limit), str(path)), str(path))


def read_bytes(path: Path, *, limit: int = MAX_JSON_BYTES, kind: str = "JSON") -> bytes:
    """What the file ``path`` holds; raises InputError if that cannot be ``kind``, or cannot be read."""
    try:
        status = path.stat()
        size = status.st_size
        if is_special(status):
            raise InputError(f"{path} is no regular file; fetch the checkpoint again.")
        if size > limit:
            raise InputError(f"{path} has {size} bytes; a {kind} file of its kind has at most {limit}.")
        with path.open("rb", buffering=0) as file:  # a buffer would hold all that is read once more
            if disguise := disguised(file.read(DISGUISE_BYTES)):
                raise InputError(f"{path} is {disguise}, not {kind}; fetch the real file.")
            file.seek(0)
            return file.readall()
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror or e}.") from None


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise InputError(f"{where} is not UTF-8 text (byte {e.start}); fetch it again.") from None


def is_special(status: os.stat_result) -> bool:
    """Whether it is a pipe or a device, of which reading may never end; a directory is not."""
    return not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode)


def disguised(head: bytes) -> str | None:
    """What a file really is when a download went wrong, by its first bytes; None if nothing odd."""
    start = head[:DISGUISE_BYTES].lstrip(b"\xef\xbb\xbf \r\n\t")
    if not head:
        return "an empty file"
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer (run `git lfs pull` in its repository)"
    if start[:9].lower() == b"<!doctype" or start[:5].lower() == b"<html":
        return "an HTML page"
    if start.startswith((b'{"error"', b"Entry not found", b"Repository not found", b"Access to ")):
        return "an error message of the hub"
    return None
