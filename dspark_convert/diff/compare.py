"""A whole diff: both sides opened, compared in every respect, and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark_convert.diff.meaning import FieldDiff, compare_meaning
from dspark_convert.diff.metadata import KeyDiff, compare_metadata, lacks_target
from dspark_convert.diff.sides import Advance, Side, SideTensor, open_sides
from dspark_convert.diff.tensors import TensorDiff, by_name, compare_tensors
from dspark_convert.lint.wanted import trimmed

if TYPE_CHECKING:
    from dspark_convert.diff.values import ValueDiff


@dataclass(frozen=True)
class Diff:
    """``meaning`` is None where the meaning of a side could not be read; ``values`` without ``--deep``.

    ``common`` is the number of tensors that both have.
    """

    a: Side
    b: Side
    meaning: tuple[FieldDiff, ...] | None
    metadata: tuple[KeyDiff, ...]
    tensors: tuple[TensorDiff, ...]
    values: tuple[ValueDiff, ...] | None
    common: int

    @property
    def retyped(self) -> tuple[TensorDiff, ...]:
        """Tensors of another type and the same shape."""
        return tuple(tensor for tensor in self.tensors if tensor.change == "type")

    @property
    def wrong_values(self) -> tuple[ValueDiff, ...]:
        """Those that rounding does not explain, or that could not be compared."""
        return tuple(value for value in self.values or () if value.judgement in ("different", "unread"))

    @property
    def is_sound(self) -> bool:
        """Whether neither side has errors of its own."""
        return not self.a.errors and not self.b.errors

    @property
    def is_same(self) -> bool:
        """Whether both are the same draft.

        Labels do not count. Where the values were compared, types do not either: the values decide. Where the
        meaning cannot be read, the same metadata in the same layout says the same.
        """
        if self.meaning is None and self.a.dialect != self.b.dialect:
            return False
        if self.meaning or any(key.counts for key in self.metadata):
            return False
        if self.values is None:
            return not self.tensors
        return len(self.retyped) == len(self.tensors) and not self.wrong_values

    def to_json(self) -> dict[str, Any]:
        """The member ``diff`` of the document of ``dspark-inspect --json``; A is the document's own file."""
        return {
            "other": {"path": str(self.b.path), "kind": self.b.kind},
            "dialects": [self.a.dialect, self.b.dialect],
            "same": self.is_same,
            "errors": [[finding.rule for finding in side.errors] for side in (self.a, self.b)],
            "target_keys_left_out": lacks_target(self.a, self.b),
            "meaning": None if self.meaning is None else [field.to_json() for field in self.meaning],
            "metadata": [key.to_json() for key in self.metadata],
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "values": None if self.values is None else [value.to_json() for value in self.values],
        }


def compare(a: Path, b: Path, target: Path | None = None) -> Diff:
    """Compare two drafts by their headers; ``target`` and what is raised as in ``open_sides``."""
    first, second = open_sides(a, b, target)
    ours, theirs = by_name(first), by_name(second)
    return Diff(
        a=first,
        b=second,
        meaning=tuple(compare_meaning(first.draft, second.draft)) if first.draft and second.draft else None,
        metadata=tuple(compare_metadata(first, second)),
        tensors=tuple(compare_tensors(ours, theirs)),
        values=None,
        common=len(ours.keys() & theirs.keys()),
    )


def common_tensors(diff: Diff) -> list[tuple[str, SideTensor, SideTensor]]:
    """Tensors whose values can be put side by side: both have them, in one shape."""
    ours: Mapping[str, SideTensor] = by_name(diff.a)
    theirs: Mapping[str, SideTensor] = by_name(diff.b)
    return [
        (name, ours[name], theirs[name])
        for name in ours
        if name in theirs and trimmed(ours[name].shape) == trimmed(theirs[name].shape)
    ]


def compare_deep(diff: Diff, advance: Advance) -> tuple[ValueDiff, ...]:
    """The values of every common tensor; ``advance`` is told the bytes of both sides.

    Raises InputError if a file ends early or a checkpoint's bytes are not as its header says.
    """
    from dspark_convert.diff.values import compare_values

    return tuple(
        compare_values(name, diff.a, ours, diff.b, theirs, advance) for name, ours, theirs in common_tensors(diff)
    )
