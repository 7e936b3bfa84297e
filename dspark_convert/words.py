"""Pieces of messages: values and names that come out of files, which may be anything and any number."""

from __future__ import annotations

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
