"""Pieces of messages: values and names that come out of files, which may be anything and any number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any


def shown(value: Any) -> str:
    """``value`` as Python writes it, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def listed(names: Sequence[str], most: int) -> str:
    """The first ``most`` of ``names`` and how many more there are: "a, b and 3 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def count_up(names: Sequence[str]) -> tuple[str, int, int, str] | None:
    """Of two names or more that differ by one number, which counts up: what is before it, the first, the last number,
    what is behind it; None of others."""
    if len(names) < 2:
        return None
    first, second = (re.split(r"(\d+)", name) for name in names[:2])
    places = [i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b]
    if len(places) != 1 or not first[places[0]].isdecimal():
        return None
    before, start, after = "".join(first[: places[0]]), int(first[places[0]]), "".join(first[places[0] + 1 :])
    if any(name != f"{before}{start + i}{after}" for i, name in enumerate(names)):
        return None
    return before, start, start + len(names) - 1, after
