"""The page of layouts: what each has otherwise than mainline, out of its table."""

from __future__ import annotations

from collections.abc import Iterator

from dspark_convert.ggufio.layouts import Layout, layouts
from dspark_convert.ggufio.layouts.names import MAINLINE
from dspark_convert.ggufio.layouts.table import Unportable

MASK = "tokenizer.ggml.mask_token_id"
INTRO = """\
# Layouts

Draft GGUFs were written in several layouts before and beside mainline llama.cpp's own, which alone mainline runs.
`dspark-inspect` reads each to the same meaning and says what is otherwise; `dspark-convert FILE --target-gguf TARGET`
makes a mainline file of it, where mainline can run such a draft at all. Each section is one file in
`dspark_convert/ggufio/layouts/`, which is used in both directions. A new layout is a new file there, a line in
`table.py`'s `ORDER`, and a file in `tests/ggufio/layout_files.py` that is written from its documentation.

Taps are what the runtime reads of the target. Mainline's numbers name layer *inputs*; where a layout names *outputs*,
reading adds one and writing takes it off, once: outputs `[0, 2, 4] -> [1, 3, 5]` inputs.
"""
#: what of layers beyond the plain ones a layout can hold, in words
BEYOND = {"window": "windowed layers", "rotation": "partial or scaled rotation", "value_scale": "scaled values"}


def page() -> str:
    return "\n".join([INTRO, *_overview(), *(line for layout in layouts() for line in _section(layout))])


def _overview() -> Iterator[str]:
    yield "| layout | `general.architecture` | runs on | taps | mask token | read | written |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for layout in layouts():
        mask = f"`{layout.keys[MASK][0]}`" if MASK in layout.keys else "the tokenizer's"
        cells = [
            f"[`{layout.name}`](#{layout.name.replace('.', '')})",
            ", ".join(f"`{name}`" for name in layout.architectures),
            layout.runs_on,
            "unknown" if layout.unreadable else layout.taps,
            "unknown" if layout.unreadable else mask,
            "no" if layout.unreadable else "yes",
            "no" if layout.unwritten else "yes",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _section(layout: Layout) -> Iterator[str]:
    yield f"## {layout.name}\n"
    yield f"{_sentence(layout.title)} Runs on {layout.runs_on}.\n"
    evidence = layout.recognise
    found = [*(f"key `{key}`" for key in evidence.keys), *(f"tensor `{name}`" for name in evidence.tensors)]
    found += [f"`{key}` = `{_value(value)}`" for key, value in (evidence.values or {}).items()]
    if found:
        yield f"Recognised by any of: {', '.join(found)}.\n"
    if layout.differs:
        yield f"{_sentence(layout.differs)}\n"
    if layout.unreadable:
        yield f"It is named and not read: {layout.unreadable}.\n"
        return
    if layout.stages:
        yield "Widths are those of the tensors; what the target decides is read from it, or taken as published.\n"
    yield from _keys(layout)
    yield from _names(layout)
    for pattern, kinds in layout.types:
        yield f"`{pattern}`, by mainline's names, may be {', '.join(kind.name for kind in kinds)}.\n"
    for rule in layout.unportable:
        yield f"Mainline cannot run it {_when(rule)}: {rule.reason}.\n"
    if layout.unwritten:
        yield f"It is not written: {layout.unwritten}.\n"
    elif layout.expresses.holds:
        held = ", ".join(BEYOND.get(feature, f"`{feature}`") for feature in layout.expresses.holds)
        yield f"Beside plain layers it can be written with {held}.\n"


def _keys(layout: Layout) -> Iterator[str]:
    if layout.is_mainline:
        return
    rows = [(f"`{key}`", " or ".join(f"`{name}`" for name in names)) for key, names in layout.keys.items()]
    if layout.prefix and layout.prefix != MAINLINE:
        rows.append((f"`{MAINLINE}*`, all others", f"`{layout.prefix}*`"))
    if rows:
        yield "| mainline's key | here |"
        yield "| --- | --- |"
        yield from (f"| {ours} | {theirs} |" for ours, theirs in rows)
        yield ""


def _names(layout: Layout) -> Iterator[str]:
    if layout.tensors:
        yield "| mainline's tensor | here |"
        yield "| --- | --- |"
        yield from (f"| `{ours}` | `{theirs}` |" for theirs, ours in layout.tensors)
        yield ""
    if layout.absent:
        yield f"It has no place for {', '.join(f'`{name}`' for name in layout.absent)}.\n"


def _when(rule: Unportable) -> str:
    if not rule.key and not rule.tensors:
        return "at all"
    signs = [f"`{name}` is there" for name in rule.tensors]
    if rule.unless_equals:
        signs.insert(0, f"`{rule.key}` is not `{rule.unless_equals}`")
    elif rule.key:
        signs.insert(0, f"`{rule.key}` is {_value(rule.value)}")
    return f"if {' or '.join(signs)}"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
