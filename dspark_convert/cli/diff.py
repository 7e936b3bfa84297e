"""dspark-inspect --diff for a reader: who the two are, one sentence, then each kind of difference."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_convert.cli.describe import value_text
from dspark_convert.cli.output import Output
from dspark_convert.cli.text import human_bytes, safe
from dspark_convert.words import listed

if TYPE_CHECKING:
    from dspark_convert.diff.compare import Diff
    from dspark_convert.diff.metadata import KeyDiff
    from dspark_convert.diff.sides import Side
    from dspark_convert.diff.tensors import TensorDiff
    from dspark_convert.diff.values import Judgement, ValueDiff

#: columns that are filled; a terminal may have more
WIDTH = 80
#: characters of a value that share a line with another one
SHORT = 28
#: names and tensors that are told of many
TOLD_NAMES, TOLD_TENSORS = 3, 12
#: keys that are told of each kind
TOLD_KEYS = 40
#: characters of a name, of which llama.cpp takes 63
NAME = 64

Lines = Iterator[str]


def inspect_diff(out: Output, a: Path, b: Path, target: Path | None, *, deep: bool, tensors: bool) -> int:
    """Compare ``a`` with ``b`` and tell it; the exit code. Raises as ``compare`` and ``compare_deep`` do."""
    from dataclasses import replace

    from dspark_convert.diff.compare import common_tensors, compare, compare_deep
    from dspark_convert.errors import UsageError
    from dspark_convert.source.hub_id import parse_hub_file

    for path in (a, b):
        if parse_hub_file(path) is not None:
            raise UsageError(f"--diff compares what is on this machine, and {path} is not: fetch it first.")
    if target is not None and not target.is_file():
        raise UsageError(f"--target is a GGUF on this machine where --diff compares, and {target} is none.")
    diff = compare(a, b, target)
    if deep:
        total = sum(ours.nbytes + theirs.nbytes for _, ours, theirs in common_tensors(diff))
        with out.progress("comparing", total) as advance:
            diff = replace(diff, values=compare_deep(diff, advance))
    if out.json_wanted:
        from dspark_convert.diff.verdict import verdict
        from dspark_convert.inspection import inspect_directory, inspect_file

        inspection = inspect_directory(a) if a.is_dir() else inspect_file(a, target)
        out.json(inspection.to_json() | {"diff": diff.to_json() | {"summary": verdict(diff)}})
    elif not out.quiet:
        _show(out, diff, tensors=tensors)
    return 0 if diff.is_same and diff.is_sound else 1


def _show(out: Output, diff: Diff, *, tensors: bool) -> None:
    """``tensors``: all of them, with their figures if values were compared."""
    from dspark_convert.diff.metadata import lacks_target
    from dspark_convert.diff.verdict import verdict

    out.human(*_side("A", diff.a), *_side("B", diff.b), "", *_wrapped(f"{verdict(diff)}."))
    _section(out, "Meaning", (line for field in diff.meaning or () for line in _change(field.title, field.a, field.b)))
    for side in (diff.a, diff.b):
        if side.errors:
            things = "1 error" if len(side.errors) == 1 else f"{len(side.errors)} errors"
            rules = listed(list(dict.fromkeys(finding.rule for finding in side.errors)), TOLD_NAMES)
            out.human("", *_wrapped(f"{side.path} has {things} ({rules}): see dspark-inspect {side.path}."))
    if diff.meaning is None:
        broken = [side.path.name for side in (diff.a, diff.b) if side.draft is None]
        out.human("", *_wrapped(f"The meaning of {' and '.join(broken)} cannot be read: see dspark-inspect of it."))
    _section(out, "Metadata", _keys([key for key in diff.metadata if not key.is_label]))
    _section(
        out, "Labels, which change nothing that is computed", _keys([key for key in diff.metadata if key.is_label])
    )
    if lacks_target(diff.a, diff.b):
        without = next(side for side in (diff.a, diff.b) if not side.has_vocabulary)
        why = "the checkpoint has none" if without.kind == "checkpoint" else f"the layout {without.dialect} has none"
        out.human("", *_wrapped(f"What a file has of its target (tokenizer, names) was left out: {why}."))
    _section(out, "Tensors", _tensors(diff.tensors, every=tensors))
    if diff.values is not None:
        _section(out, "Values", _values(diff.values))
        if tensors and diff.values:
            out.human("", *_table(diff.values))


def _section(out: Output, title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        out.human("", title, *lines)


def _side(letter: str, side: Side) -> Lines:
    sizes: Counter[str] = Counter()
    for tensor in side.tensors:
        sizes[tensor.type] += tensor.nbytes
    types = ", ".join(f"{kind} {human_bytes(size)}" for kind, size in sizes.most_common())
    what = "checkpoint, to be written as" if side.kind == "checkpoint" else "layout"
    yield f"{letter}  {safe(str(side.path))}"
    yield from _wrapped(f"{what} {side.dialect}, {len(side.tensors)} tensors: {types or 'none'}", indent=3)


def _wrapped(text: str, indent: int = 0) -> Lines:
    import textwrap

    pad = " " * indent
    yield from textwrap.wrap(safe(text), WIDTH, initial_indent=pad, subsequent_indent=pad, break_on_hyphens=False)


def _name(name: str) -> str:
    text = safe(name, NAME)
    return text if len(text) <= NAME else f"{text[: NAME // 2]}… ({len(name):,} characters)"


def _change(name: str, a: Any, b: Any) -> Lines:
    """``name: a -> b`` on one line, or on three where that is too long."""
    name, ours, theirs = _name(name), _text(a), _text(b)
    line = f"  {name}: {ours} -> {theirs}"
    if len(line) <= WIDTH and max(len(ours), len(theirs)) <= SHORT:
        yield line
        return
    yield f"  {name}"
    yield from (f"    {letter}  {text}" for letter, text in (("A", ours), ("B", theirs)))


def _text(value: Any) -> str:
    """``value``, cut so that it fits a line of its own."""
    if value is None:
        return "none"
    text = value_text(value)
    return text if len(text) <= WIDTH - 8 else text[: WIDTH - 9] + "…"


def _keys(keys: Sequence[KeyDiff]) -> Lines:
    for key in keys[:TOLD_KEYS]:
        yield from _key(key)
    if len(keys) > TOLD_KEYS:
        yield f"  and {len(keys) - TOLD_KEYS:,} more (--json)"


def _key(key: KeyDiff) -> Lines:
    name = _name(key.key)
    if key.items is not None:
        lengths, types = key.items.lengths, key.types
        if key.change == "changed":
            counts = f"{lengths[0]:,} items" if lengths[0] == lengths[1] else f"{lengths[0]:,} -> {lengths[1]:,} items"
            yield f"  {name}: {counts}, {key.items.different:,} different"
            for index, a, b in key.items.first:
                yield from (f"  {line}" for line in _change(str(index), a, b))
            return
        if key.change != "type":
            letter, sign = ("A", "-") if key.change == "only-a" else ("B", "+")
            yield f"{sign} {name}: {max(lengths):,} items, only in {letter}"
            return
        yield f"  {name}: {types[0]} -> {types[1]}"
    elif key.change == "only-a":
        yield from _alone("-", name, key.a)
    elif key.change == "only-b":
        yield from _alone("+", name, key.b)
    elif key.types[0] != key.types[1]:
        yield from _change(name, f"{_text(key.a)} ({key.types[0]})", f"{_text(key.b)} ({key.types[1]})")
    else:
        yield from _change(name, key.a, key.b)


def _alone(sign: str, name: str, value: Any) -> Lines:
    text = _text(value)
    line = f"{sign} {name}: {text}"
    if len(line) <= WIDTH:
        yield line
    else:
        yield from (f"{sign} {name}", f"       {text}")


def _tensors(tensors: Sequence[TensorDiff], *, every: bool) -> Lines:
    most = len(tensors) if every else TOLD_TENSORS
    for change, sign, where in (("only-a", "-", "A"), ("only-b", "+", "B")):
        alone = [t for t in tensors if t.change == change]
        for tensor in alone[:most]:
            held = tensor.a or tensor.b
            assert held is not None  # noqa: S101 - one of the two has it
            yield f"{sign} {_name(tensor.name)}: {held.type} {list(held.shape)}"
        if len(alone) > most:
            yield f"{sign} and {len(alone) - most} more that only {where} has (--tensors)"
    groups: dict[str, list[str]] = defaultdict(list)
    for tensor in tensors:
        if tensor.a is not None and tensor.b is not None:
            if tensor.change == "shape":
                yield from _change(tensor.name, str(list(tensor.a.shape)), str(list(tensor.b.shape)))
            else:
                groups[f"{tensor.a.type} -> {tensor.b.type}"].append(tensor.name)
    for types, names in groups.items():
        told = listed([_name(name) for name in names], len(names) if every else TOLD_NAMES)
        yield from _wrapped(f"{types}: {_some(len(names))}: {told}", indent=2)


def _values(values: Sequence[ValueDiff]) -> Lines:
    counts = Counter(value.judgement for value in values)
    words: dict[Judgement, str] = {
        "identical": "the same bytes",
        "equal": "the same values",
        "rounding": "within rounding",
        "different": "different",
        "unread": "not comparable",
    }
    told = ", ".join(f"{counts[kind]} {word}" for kind, word in words.items() if counts[kind])
    yield from _wrapped(f"{_some(len(values))}: {told or 'none'}", indent=2)
    wrong = [value for value in values if value.judgement in ("different", "unread")]
    for value in wrong[:TOLD_TENSORS]:
        yield f"  {_name(value.name)}: {_apart(value)}{words[value.judgement]}"
        yield from _wrapped(value.note, indent=4)
    if len(wrong) > TOLD_TENSORS:
        yield f"  and {len(wrong) - TOLD_TENSORS} more (--tensors)"
    groups: dict[str, list[ValueDiff]] = defaultdict(list)
    for value in values:
        if value.judgement == "rounding":
            groups[_types(value)].append(value)
    for types, group in groups.items():
        worst = max(group, key=lambda value: value.relative or 0)
        text = (
            f"{types}: {_some(len(group))}, at most {worst.relative:.2g} of its size apart ({worst.name}),"
            f" where {worst.expected:.2g} is explained"
        )
        yield from _wrapped(text, indent=2)


def _types(value: ValueDiff) -> str:
    return value.types[0] if value.types[0] == value.types[1] else " -> ".join(value.types)


def _apart(value: ValueDiff) -> str:
    return "" if value.relative is None else f"{value.relative:.2g} of its size apart, "


def _some(count: int) -> str:
    return "1 tensor" if count == 1 else f"{count} tensors"


def _table(values: Sequence[ValueDiff]) -> Lines:
    """A tensor a line: how far apart (a share of A's size, then the largest difference), and the judgement."""

    def figure(number: float | None) -> str:
        return "" if number is None else f"{number:.2g}"

    rows = [("tensor", "types", "apart", "max", "cosine", "")]
    for value in values:
        cosine = "" if value.cosine is None else f"{value.cosine:.4f}"
        rows.append(
            (
                _name(value.name),
                _types(value),
                figure(value.relative),
                figure(value.max_abs),
                cosine,
                value.judgement,
            )
        )
    names, kind = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, kinds, apart, most, cosine, word in rows:
        yield f"{name:<{names}}  {kinds:<{kind}}  {apart:>7}  {most:>7}  {cosine:>6}  {word}".rstrip()
