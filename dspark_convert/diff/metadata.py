"""The key/values of two drafts: added, removed, changed, and which of it is a label only."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from dspark_convert.diff.sides import Side, of_target
from dspark_convert.document import plain

#: items that differ are told up to here; the rest is counted
TOLD_ITEMS = 4
#: lists up to this length are told whole
SHORT_LIST = 16
#: characters of a text that JSON repeats
MOST_TEXT = 2000

#: what tells names and origin, and does not change what a draft computes
LABELS = (
    "general.",
    "split.",
    "tokenizer.chat_template",
    "dspark.source",
    "dspark.revision",
    "dspark.converter_version",
    "dspark.target.",
)

Change = Literal["only-a", "only-b", "changed", "type"]


@dataclass(frozen=True)
class Items:
    """How two long lists differ: ``first`` are (position, a's item, b's item), None past a list's end."""

    lengths: tuple[int, int]
    different: int
    first: tuple[tuple[int, Any, Any], ...]


@dataclass(frozen=True)
class KeyDiff:
    """``a`` and ``b`` are the values, None where the key is not there and where ``items`` tells of long lists.

    ``layouts_differ``: the two files need not say the same things.
    """

    key: str
    change: Change
    types: tuple[str | None, str | None]
    a: Any = None
    b: Any = None
    items: Items | None = None
    layouts_differ: bool = False

    @property
    def is_label(self) -> bool:
        """Whether the draft computes the same with either."""
        return self.key.startswith(LABELS)

    @property
    def counts(self) -> bool:
        """Whether it makes another draft. A key that only one of two layouts has is judged by the meaning, and so is
        one that has a value a layer in one of them and one for all in the other."""
        spelled = self.change in ("only-a", "only-b") or _one_for_all(self.a, self.b) or _one_for_all(self.b, self.a)
        return not self.is_label and not (self.layouts_differ and spelled)

    def to_json(self) -> dict[str, Any]:
        found = {"key": self.key, "change": self.change, "label": self.is_label, "types": list(self.types)}
        if self.items is None:
            return found | {"a": _plain(self.a), "b": _plain(self.b)}
        first = [{"index": index, "a": _plain(a), "b": _plain(b)} for index, a, b in self.items.first]
        return found | {"lengths": list(self.items.lengths), "different": self.items.different, "first": first}


def _one_for_all(values: Any, value: Any) -> bool:
    """Whether the list ``values`` says of each layer what ``value`` says of all."""
    return _is_list(values) and not _is_list(value) and {_stored(each) for each in values} == {_stored(value)}


def compare_metadata(a: Side, b: Side) -> list[KeyDiff]:
    """What differs, in the order of ``a``'s keys, then what only ``b`` has; not what comes from a target if
    ``lacks_target`` says so."""
    partial, layouts_differ = lacks_target(a, b), a.dialect != b.dialect
    ours, theirs = _keys(a, partial), _keys(b, partial)
    found = []
    for key in ours:
        if key not in theirs:
            found.append(KeyDiff(key, "only-a", (a.value_type(key), None), **_alone("a", a.metadata[key])))
        elif (diff := _compare(key, a, b)) is not None:
            found.append(diff)
    for key in theirs:
        if key not in ours:
            found.append(KeyDiff(key, "only-b", (None, b.value_type(key)), **_alone("b", b.metadata[key])))
    return [replace(diff, layouts_differ=layouts_differ) for diff in found]


def lacks_target(a: Side, b: Side) -> bool:
    """Whether one of both has nothing of its target: a checkpoint, or a layout without a tokenizer."""
    return not (a.has_vocabulary and b.has_vocabulary) and (a.kind, a.dialect) != (b.kind, b.dialect)


def _keys(side: Side, partial: bool) -> dict[str, None]:
    keys: dict[str, None] = {}
    for key in side.metadata:
        if not (partial and of_target(key)):
            keys[key] = None
    return keys


def _compare(key: str, a: Side, b: Side) -> KeyDiff | None:
    types = a.value_type(key), b.value_type(key)
    if types[0] == types[1] and _same_bytes(a, b, key):
        return None
    ours, theirs = a.metadata[key], b.metadata[key]
    if _is_list(ours) and _is_list(theirs):
        items = _compare_items(ours, theirs)
        same = not items.different
        if max(items.lengths) <= SHORT_LIST:
            values: dict[str, Any] = {"a": list(ours), "b": list(theirs)}
        else:
            values = {"items": items}
    else:
        same = _stored(ours) == _stored(theirs)
        values = {"a": ours, "b": theirs}
    if same and types[0] == types[1]:
        return None
    return KeyDiff(key, "type" if same else "changed", types, **values)


def _same_bytes(a: Side, b: Side, key: str) -> bool:
    """Whether both are encoded alike, which is quickly seen and says enough."""
    if a.file is None or b.file is None:
        return False
    raw = a.file.kv(key).raw
    return raw is not None and raw == b.file.kv(key).raw


def _compare_items(a: Sequence[Any], b: Sequence[Any]) -> Items:
    different = 0
    first: list[tuple[int, Any, Any]] = []
    for index, (ours, theirs) in enumerate(zip(a, b, strict=False)):
        if _stored(ours) != _stored(theirs):
            different += 1
            if len(first) < TOLD_ITEMS:
                first.append((index, ours, theirs))
    shorter, longer = sorted((len(a), len(b)))
    different += longer - shorter
    rest = islice(a if len(a) > len(b) else b, shorter, shorter + TOLD_ITEMS - len(first))
    first += [(i, item, None) if len(a) > len(b) else (i, None, item) for i, item in enumerate(rest, shorter)]
    return Items((len(a), len(b)), different, tuple(first))


def _alone(side: Literal["a", "b"], value: Any) -> dict[str, Any]:
    if not _is_list(value) or len(value) <= SHORT_LIST:
        return {side: list(value) if _is_list(value) else value}
    first = enumerate(islice(value, TOLD_ITEMS))
    lengths = (len(value), 0) if side == "a" else (0, len(value))
    items = tuple((i, item, None) if side == "a" else (i, None, item) for i, item in first)
    return {"items": Items(lengths, len(value), items)}


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _stored(value: Any) -> Any:
    """``value`` to compare: a float as its bits in float32, which tells NaN and -0 too."""
    if isinstance(value, float):
        try:
            return struct.pack("<f", value)
        except OverflowError:
            return value
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MOST_TEXT else value[:MOST_TEXT] + "…"
    if isinstance(value, Mapping) or not _is_list(value):
        return plain(value)
    return [_plain(item) for item in value]
