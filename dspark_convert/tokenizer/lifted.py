"""Reads tokenizer.json with its merges in the short spelling: "a b" for ["a", "b"].

A list for each of 150,000 merges would take most of the time and the memory of a conversion before
it writes. As the tokenizers library lays the file out, every line break in it is one of the layout,
since a string holds none; so the pairs can be joined as text.
"""

from __future__ import annotations

import json
from itertools import repeat
from operator import contains
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.source.jsonfile import parse_object, read_bytes, read_object

#: before the first piece, between the two of a pair, between two pairs, behind the last piece
_FIRST = b'\n    "merges": [\n      [\n        "'
_COMMA = b'",\n        "'
_NEXT = b'"\n      ],\n      [\n        "'
_LAST = b'"\n      ]\n    ]'

#: how a space may stand in JSON, beside itself
_SPACE = b"\\u0020"


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; raises InputError as ``read_object`` does.

    The merges become "a b" where that says the same: laid out in any other way, or with a space in a
    piece, they stay as they are.
    """
    return _lifted(path) or read_object(path)


def _lifted(path: Path) -> dict[str, Any] | None:
    """The object with its merges joined; None if that cannot be done, for which the file itself may be to blame."""
    data = read_bytes(path)
    start = data.find(_FIRST)
    end = data.find(_LAST, start)
    if start < 0 or end < 0:
        return None
    listed = data[start + len(_FIRST) : end]
    rest = data[:start] + b'\n"merges": null' + data[end + len(_LAST) :]
    # Objects take ten times their text, so nothing else is held while they are made.
    del data
    narrow = _narrow(listed)  # the shorter, the faster
    pairs = narrow.count(_narrow(_NEXT)) + 1
    of_layout = pairs * _COMMA.count(b" ") + (pairs - 1) * _NEXT.count(b" ")
    if len(listed) - len(narrow) != of_layout or _SPACE in narrow:
        return None
    del listed
    merges = b'["' + narrow.replace(_narrow(_NEXT), b'","').replace(_narrow(_COMMA), b" ") + b'"]'
    del narrow
    texts = [rest]
    del rest
    try:
        tokenizer = parse_object(texts.pop(), str(path))
    except InputError:
        return None
    model = tokenizer.get("model")
    if not isinstance(model, dict) or model.get("merges", ()) is not None:
        return None
    model["merges"] = _merges(merges, pairs)
    return tokenizer if model["merges"] else None


def _narrow(text: bytes) -> bytes:
    return text.translate(None, b" ")


def _merges(text: bytes, pairs: int) -> list[str] | None:
    """The merges in ``text``, a JSON list of them; None if they are not ``pairs`` of pieces without a space."""
    try:
        merges: list[Any] = json.loads(text)
    except ValueError:
        return None
    # As many strings as pairs: none had a quote in it. With a space in each, and room for no more, it is the comma's.
    if len(merges) != pairs or set(map(type, merges)) != {str} or not all(map(contains, merges, repeat(" "))):
        return None
    return merges
