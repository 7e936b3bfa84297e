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
from dspark_convert.source.jsonfile import parse_object, read_bytes

#: before the first piece, between the two of a pair, between two pairs, behind the last piece
_FIRST = b'\n    "merges": [\n      [\n        "'
_COMMA = b'",\n        "'
_NEXT = b'"\n      ],\n      [\n        "'
_LAST = b'"\n      ]\n    ]'


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; raises InputError as ``read_object`` does.

    The merges become "a b" where that says the same: laid out in any other way, or with a space in a
    piece, they stay as they are.
    """
    data = read_bytes(path)
    start = data.find(_FIRST)
    end = data.find(_LAST, start)
    if start >= 0 and end >= 0 and (merges := _joined(data[start + len(_FIRST) : end])):
        try:
            tokenizer = parse_object(data[:start] + b'\n"merges": null' + data[end + len(_LAST) :], str(path))
        except InputError:
            tokenizer = {}  # told again below, with the lines as they are in the file
        model = tokenizer.get("model")
        if isinstance(model, dict) and "merges" in model and model["merges"] is None:
            model["merges"] = merges
            return tokenizer
        del tokenizer, merges
    return parse_object(data, str(path))


def _joined(listed: bytes) -> list[str] | None:
    """The merges of ``listed``, the text from the first piece to the last; None if they are not all pairs
    of pieces without a space."""
    pairs = listed.count(_NEXT) + 1
    try:
        merges = json.loads(b'["' + listed.replace(_NEXT, b'","').replace(_COMMA, b" ") + b'"]')
    except ValueError:
        return None
    # As many strings as pairs: none had a quote in it. As many spaces, and one in each: it is the comma's.
    if len(merges) != pairs or set(map(type, merges)) != {str}:
        return None
    if "".join(merges).count(" ") != pairs or not all(map(contains, merges, repeat(" "))):
        return None
    return list(merges)
