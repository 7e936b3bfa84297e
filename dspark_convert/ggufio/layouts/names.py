"""Names of tensors and keys in a layout, and mainline's for them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache

from dspark_convert.ggufio.layouts.table import Layout, layout_named

#: mainline's own prefix
MAINLINE = "dflash."

#: our own keys (``dspark_convert.metadata``), which mean the same in every layout
OWN = re.compile(
    r"dspark\.(backbone|block_size|target_layers|mask_token_id|sample_from_anchor|markov_rank|markov_head_type"
    r"|has_confidence_head|rope_style|rope_rotated|causal_pattern|mask_row|source|revision|converter_version|target\..+)"
)

#: of a pattern: the number of a layer, that of the last one, any rest
HOLES = {"n": r"(?P<n>\d+)", "last": r"(?P<last>\d+)", "*": r"(?P<rest>.+)"}


def mainline_name(dialect: str, name: str) -> str:
    """Mainline's name of the tensor that layout ``dialect`` calls ``name``; most names are the same."""
    for theirs, mainline in layout_named(dialect).tensors:
        match = _pattern(theirs).fullmatch(name)
        if match:
            return _fill(mainline, match.groupdict())
    return name


def dialect_name(dialect: str, name: str, n_layer: int) -> str | None:
    """What layout ``dialect`` calls mainline's tensor ``name`` of a draft of ``n_layer`` layers; None: it has none."""
    layout = layout_named(dialect)
    if any(fnmatchcase(name, pattern) for pattern in layout.absent):
        return None
    for theirs, mainline in layout.tensors:
        match = _pattern(mainline).fullmatch(name)
        if match:
            return _fill(theirs, match.groupdict() | {"last": str(n_layer - 1)})
    return name


def misplaced(layout: Layout, name: str, n_layer: int) -> bool:
    """Whether a tensor that belongs to the last layer carries another's number."""
    for theirs, _ in layout.tensors:
        match = _pattern(theirs).fullmatch(name)
        if match:
            return "last" in match.groupdict() and match["last"] != str(n_layer - 1)
    return False


def dialect_key(layout: Layout, key: str) -> str:
    """What ``layout`` calls mainline's key ``key`` (the one that is written, where there are several)."""
    if key in layout.keys:
        return layout.keys[key][0]
    if layout.prefix and key.startswith(MAINLINE):
        return layout.prefix + key.removeprefix(MAINLINE)
    return key


@cache
def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"\{(n|last|\*)\}", text)
    return re.compile("".join(HOLES[part] if at % 2 else re.escape(part) for at, part in enumerate(parts)))


def _fill(pattern: str, found: dict[str, str]) -> str:
    return re.sub(r"\{(n|last|\*)\}", lambda hole: found["rest" if hole[1] == "*" else hole[1]], pattern)
