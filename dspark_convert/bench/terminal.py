"""Bars of characters for a terminal; plain ASCII where the encoding has no others. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Glyphs:
    """``parts``: a cell filled by 1/n, 2/n … of its width; ``full``: all of it."""

    full: str
    parts: str
    empty: str
    mark: str
    rule: str


FINE = Glyphs(full="█", parts="▏▎▍▌▋▊▉", empty=" ", mark="◆", rule="│")
ASCII = Glyphs(full="#", parts="", empty=" ", mark="o", rule="|")


def glyphs_for(encoding: str | None) -> Glyphs:
    """``FINE`` if a stream of this encoding can write it."""
    try:
        "".join(vars(FINE).values()).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return FINE


def bar(value: float, width: int, glyphs: Glyphs, *, mark: float | None = None, rule: float | None = None) -> str:
    """A bar over ``value`` (0 to 1) of ``width`` cells, with a mark or a rule over the cell of another value.

    Both bar and mark are cut at the ends.
    """
    filled = min(max(value, 0.0), 1.0) * width
    cells = [glyphs.full] * int(filled)
    part = int((filled - int(filled)) * (len(glyphs.parts) + 1))
    if part:
        cells.append(glyphs.parts[part - 1])
    cells += [glyphs.empty] * (width - len(cells))
    for at, glyph in ((rule, glyphs.rule), (mark, glyphs.mark)):
        if at is not None and math.isfinite(at):
            cells[min(max(int(at * width), 0), width - 1)] = glyph
    return "".join(cells).rstrip()
