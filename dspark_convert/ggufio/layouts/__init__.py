"""One TOML a layout of draft files: how it is recognised, and what its keys and names mean in mainline's words.

A layout ("dialect") is a table to hold beside a file's dump. To add one, write its table, name it in
``table.ORDER`` before those that fit its files too, and give it a builder in ``tests/ggufio/layout_files.py``,
written from its documentation. Everything that reads, judges, compares or rewrites a draft file uses these
tables in both directions. Their parts:

``title``, ``runs_on``, ``differs``
    for messages: what people call it, what runs it, what mainline has otherwise.
``architectures``
    values of ``general.architecture``.
``[recognise]``
    evidence, of which one piece is enough: ``keys`` and ``tensors`` are patterns, ``values`` keys with
    the value that tells. Without any, every file of the architecture fits.
``prefix``, ``nested``
    keys that begin with ``prefix`` are mainline's ``dflash.`` keys, with the same names and types behind
    it. Keys that begin with ``nested`` are the layout's own: each is named below, or told as unknown.
``[keys]``
    mainline's key = what stands for it here, or a list in order of preference (the first is written).
    Values have mainline's types: UINT32 sizes and tokens, FLOAT32, BOOL, lists of INT32 or UINT32.
``unread``
    patterns of keys that mainline has no need of.
``taps``, ``tap_type``
    "inputs": ids are llama.cpp's layer inputs, as in mainline; "outputs": value + 1 is the input.
    ``tap_type`` is the item type in which they are written (INT32 unless said).
``stages``
    DeepSeek-V4 stages whose sizes are left to the tensors and the target (``stage_sizes``).
``tensors``
    pairs of this layout's name and mainline's; the first that fits counts, other names are the same.
    ``{n}`` is a layer's number, ``{last}`` that of the last layer, ``{*}`` the rest of the name.
``absent``
    patterns of mainline's tensors that the layout cannot hold.
``variant``
    the file is mainline's but for what is missing or misspelt, which the lint's rules tell.
``[[unportable]]``
    a draft that mainline cannot run, and the ``reason``: ``key`` has ``value``, or differs from the
    key ``unless_equals``, or one of ``tensors`` is there; without any of them, every draft.
``unreadable``, ``unwritten``
    why the layout is only named, and why it is not written.
``[expresses]``, ``[[write]]``, ``omits``, ``types``
    for writing (``dspark_convert.foreign``): which drafts it can hold, the keys it has beside those
    above, mainline's keys that it has no word for, and patterns of mainline's tensors with the types
    that its engine takes them in (the first that fits).
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from dspark_convert.ggufio.layouts.names import dialect_key, dialect_name, mainline_name
from dspark_convert.ggufio.layouts.table import Layout, Recognise, layout_named, layouts
from dspark_convert.ggufio.reader import GGUFFile

__all__ = ["Layout", "dialect_key", "dialect_name", "find_layout", "layout_named", "layouts", "mainline_name"]


def find_layout(architecture: str, file: GGUFFile) -> Layout | None:
    """The layout of ``file``, or None if its architecture is no draft's."""
    known = (layout for layout in layouts() if architecture in layout.architectures)
    return next((layout for layout in known if _fits(layout.recognise, file)), None)


def _fits(evidence: Recognise, file: GGUFFile) -> bool:
    if not (evidence.keys or evidence.tensors or evidence.values):
        return True
    if any(file.metadata.get(key) == value for key, value in (evidence.values or {}).items()):
        return True
    if any(fnmatchcase(key, pattern) for pattern in evidence.keys for key in file.metadata):
        return True
    return any(fnmatchcase(tensor.name, pattern) for pattern in evidence.tensors for tensor in file.tensors)
