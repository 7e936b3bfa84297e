"""Where in a TOML file a key stands: tomllib tells no positions, but leading lines can be parsed alone."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

#: keys, and positions in lists of tables
Place = Sequence[str | int]


def line_of(text: str, place: Place) -> int:
    """The line (from 1) on which the statement begins that makes ``place``; 1 if nothing in ``text`` does."""
    lines = text.split("\n")
    starts = _checks(text)
    if place[0] == "check" and len(place) > 1 and isinstance(place[1], int) and place[1] < len(starts):
        # Only that check's lines: a file of many would be parsed over and over.
        first, end = starts[place[1]], [*starts, len(lines)][place[1] + 1]
        return first + _line_of(lines[first:end], ("check", 0, *place[2:]))
    return _line_of(lines, place)


@lru_cache(maxsize=1)
def _checks(text: str) -> Sequence[int]:
    """Where each [[check]] begins (lines from 0); one inside a text of several lines is none."""
    lines = text.split("\n")
    starts: list[int] = []
    begin = 0
    for at in (at for at, line in enumerate(lines) if line.lstrip().startswith("[[")):
        if _toml(lines[at : at + 1]) == {"check": [{}]} and _toml(lines[begin:at]) is not None:
            starts.append(at)
            begin = at
    return starts


def _toml(lines: Sequence[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


def _line_of(lines: Sequence[str], place: Place) -> int:
    low, high = 0, len(lines)
    while high - low > 1:  # the first ``low`` lines lack it, the first ``high`` have it
        middle = (low + high) // 2
        if _holds(_parsed(lines, middle)[0], place):
            high = middle
        else:
            low = middle
    # A statement over several lines is there at its last one: it began behind the lines that parse before.
    return _parsed(lines, high - 1)[1] + 1


def _parsed(lines: Sequence[str], count: int) -> tuple[dict[str, Any], int]:
    """The longest part of the first ``count`` lines that is TOML, and how many lines that is."""
    while count:
        if (document := _toml(lines[:count])) is not None:
            return document, count
        count -= 1
    return {}, 0


def _holds(value: Any, place: Place) -> bool:
    for key in place:
        if isinstance(key, int):
            if not isinstance(value, list) or key >= len(value):
                return False
        elif not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True
