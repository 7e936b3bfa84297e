"""Where in a TOML file a key stands: tomllib tells no positions, but leading lines can be parsed alone."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

#: keys, and positions in lists of tables
Place = Sequence[str | int]


def line_of(text: str, place: Place) -> int:
    """The line (from 1) on which the statement begins that makes ``place``; 1 if nothing in ``text`` does."""
    lines = text.split("\n")
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
        try:
            return tomllib.loads("\n".join(lines[:count])), count
        except tomllib.TOMLDecodeError:
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
