"""What a layout has otherwise than mainline, and what in a draft mainline has no way to run."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.layouts.names import MAINLINE, misplaced
from dspark_convert.ggufio.layouts.table import Layout, Unportable
from dspark_convert.ggufio.layouts.view import MASK, TAPS, View
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.words import listed, shown

#: of names and keys that differ, so many are told
SHOWN = 3
ARCHITECTURE = "general.architecture"


def check_layout(view: View) -> Iterator[Finding]:
    """Findings about the layout alone; none for mainline's and its variants, of which rules tell what is wrong."""
    layout = view.layout
    unportable = list(_unportable(view.source, layout))
    if layout.name == "dspark":
        message = f"{layout.title} (architecture dspark): only {layout.runs_on} run it."
        yield warning("early-layout", ARCHITECTURE, message, "for mainline: dspark-convert FILE --target-gguf TARGET")
    elif not layout.is_mainline and not layout.variant:
        message = f"{layout.title}, which mainline llama.cpp does not run; {layout.differs}."
        if layout.unreadable:
            message = f"{message[:-1]}. It is not read: {layout.unreadable}."
        fix = "rewrite it for mainline: dspark-convert FILE --target-gguf TARGET"
        if unportable or layout.unreadable:
            fix = f"run it with {layout.runs_on}, or convert a checkpoint that mainline can run"
        yield error("legacy-layout", ARCHITECTURE, message, fix)
    yield from unportable
    if layout.unreadable:
        return
    yield from _taps(view)
    yield from _mask(view)
    yield from _names(view)
    if view.sizes is not None:
        yield view.sizes
    for key in view.unknown[:SHOWN]:
        message = f"nothing is known of this key in {layout.title}, so it is left out."
        yield warning("key-unknown", key, message)


def _unportable(file: GGUFFile, layout: Layout) -> Iterator[Finding]:
    for rule in layout.unportable:
        where = _evidence(file, rule)
        if where is not None:
            message = f"mainline llama.cpp cannot run this draft: {rule.reason}."
            yield error("not-portable", where, message, f"run it with {layout.runs_on}")


def _evidence(file: GGUFFile, rule: Unportable) -> str | None:
    """The key or tensor by which a draft is what mainline cannot run."""
    if not rule.key and not rule.tensors:
        return ARCHITECTURE
    if rule.key in file.metadata:
        value = file.metadata[rule.key]
        if rule.unless_equals:
            if value != file.metadata.get(rule.unless_equals):
                return rule.key
        elif value == rule.value:
            return rule.key
    return next((t.name for t in file.tensors if any(fnmatchcase(t.name, each) for each in rule.tensors)), None)


def _taps(view: View) -> Iterator[Finding]:
    key = view.keys.get(TAPS, TAPS)
    if view.layout.taps == "outputs" and TAPS in view.file.metadata and key in view.source.metadata:
        theirs, ours = view.source.metadata[key], view.file.metadata[TAPS]
        if isinstance(ours, list):
            outputs = list(theirs[: len(ours)])
            message = (
                f"the layers {shown(outputs)} are meant as outputs; as inputs, which mainline counts, {shown(ours)}."
            )
            yield info("layout-taps", key, message)


def _mask(view: View) -> Iterator[Finding]:
    key = view.keys.get(MASK)
    if key is None:
        return
    own, other = view.source.metadata[key], view.source.metadata.get(MASK)
    message = f"the mask token {shown(own)} stands here; mainline reads it from {MASK}."
    if other is None or other == own:
        yield info("layout-mask", key, message)
    else:
        message = f"the mask token is {shown(own)} here and {shown(other)} in {MASK}; the draft's own counts."
        yield warning("layout-mask", key, message, "check it with the draft's author")


def _names(view: View) -> Iterator[Finding]:
    renamed = [f"{theirs} is {ours}" for ours, theirs in view.names.items()]
    if renamed and not view.layout.variant:
        message = f"{len(renamed)} tensors have other names in mainline: {listed(renamed, SHOWN)}."
        yield info("layout-names", next(iter(view.names.values())), message)
    held: dict[str, str] = {}
    pairs = [(ours.name, each.name) for ours, each in zip(view.file.tensors, view.source.tensors, strict=True)]
    for ours, theirs in [pair for pair in pairs if held.setdefault(*pair) != pair[1]][:SHOWN]:
        message = f"this tensor and {held[ours]} are the same one in mainline, {ours}."
        yield error("layout-clash", theirs, message, "remove the stale one")
    layers = view.file.metadata.get(f"{MAINLINE}block_count")
    if isinstance(layers, int):
        odd = [t.name for t in view.source.tensors if misplaced(view.layout, t.name, layers)]
        if odd:
            message = f"it belongs to the last of {layers} stages, {layers - 1}."
            yield error("layout-stage", odd[0], message, "convert the published checkpoint again")
