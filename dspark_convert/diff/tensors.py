"""The tensors of two drafts: which there are, of what shape and type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dspark_convert.diff.sides import Side, SideTensor
from dspark_convert.lint.wanted import trimmed

#: ends the names of companions that belong to how a matrix is quantised
SCALES = (".scale", ".input_scale")


@dataclass(frozen=True)
class TensorDiff:
    """``a`` and ``b`` are None where the tensor is not there; of "shape" the type may differ too."""

    name: str
    change: Literal["only-a", "only-b", "shape", "type"]
    a: SideTensor | None
    b: SideTensor | None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "change": self.change, "a": _json(self.a), "b": _json(self.b)}


def by_name(side: Side) -> dict[str, SideTensor]:
    """The side's tensors by their names; of two of one name the first counts."""
    found: dict[str, SideTensor] = {}
    for tensor in side.tensors:
        found.setdefault(tensor.name, tensor)
    return found


def compare_tensors(a: Mapping[str, SideTensor], b: Mapping[str, SideTensor]) -> list[TensorDiff]:
    """What differs, in the order of ``a``, then what only ``b`` has."""
    found = []
    for name, ours in a.items():
        theirs = b.get(name)
        if theirs is None:
            if not _is_companion(name, a, b):
                found.append(TensorDiff(name, "only-a", ours, None))
        elif trimmed(ours.shape) != trimmed(theirs.shape):
            found.append(TensorDiff(name, "shape", ours, theirs))
        elif ours.kind != theirs.kind:
            found.append(TensorDiff(name, "type", ours, theirs))
    for name, theirs in b.items():
        if name not in a and not _is_companion(name, a, b):
            found.append(TensorDiff(name, "only-b", None, theirs))
    return found


def _is_companion(name: str, a: Mapping[str, SideTensor], b: Mapping[str, SideTensor]) -> bool:
    """Whether ``name`` is the scale of a matrix that is of another type in the other file, and needs none there."""
    for suffix in SCALES:
        matrix = f"{name.removesuffix(suffix)}.weight"
        if name.endswith(suffix) and matrix in a and matrix in b:
            return a[matrix].kind != b[matrix].kind
    return False


def _json(tensor: SideTensor | None) -> dict[str, Any] | None:
    return None if tensor is None else {"type": tensor.type, "shape": list(tensor.shape)}
