"""Does every tensor of the file hold the checkpoint's values? Compared one by one, without running anything.

The distance is the root mean square of the difference over that of the checkpoint's tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dspark_convert.errors import InputError
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.runtime.distance import distance, scale
from dspark_convert.runtime.mixups import find_mixup
from dspark_convert.runtime.published import TABLES, checkpoint_name, required_names
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.rounding import dequantise, hold
from dspark_convert.runtime.rows import wrong_row

if TYPE_CHECKING:
    import torch

    from dspark_convert.reference.facts import Facts

#: the distance that rounding to a type can explain. F16, BF16: half a unit in the last place. Q8_0: the worst
#: block, all of whose weight is in one number. Others: three times what normal weights have (docs/validation.md)
EXPLAINED = {
    GGMLType.F32: 1e-6,
    GGMLType.F16: 4.9e-4,
    GGMLType.BF16: 3.9e-3,
    GGMLType.Q8_0: 2.3e-2,
    GGMLType.Q6_K: 0.05,
    GGMLType.Q5_K: 0.11,
    GGMLType.Q5_1: 0.12,
    GGMLType.Q5_0: 0.13,
    GGMLType.Q4_K: 0.22,
    GGMLType.Q4_1: 0.23,
    GGMLType.IQ4_NL: 0.25,
    GGMLType.IQ4_XS: 0.25,
    GGMLType.Q4_0: 0.27,
    GGMLType.MXFP4: 0.35,
    GGMLType.NVFP4: 0.35,
    GGMLType.Q3_K: 0.45,
}
#: types of fewer bits; two tensors that have nothing to do with each other are 1.4 apart
EXPLAINED_OTHERWISE = 0.7

#: of what is wrong, so much is told
TOLD_PROBLEMS = 4

#: what a file may differ from an independent rounding to its type, where there is one
SAME = {GGMLType.F32: 1e-6, GGMLType.F16: 1e-6, GGMLType.BF16: 1e-6, GGMLType.Q8_0: 1e-3}


@dataclass(frozen=True)
class Distance:
    """``name`` in the GGUF; ``relative`` is the distance to the checkpoint's tensor, ``limit`` what is allowed."""

    name: str
    type_name: str
    relative: float
    limit: float


@dataclass
class Values:
    """What was compared.

    ``held`` (checkpoint names) are the tensors as the file's types hold them, where that changes them;
    ``embed`` and ``head`` [vocab, hidden] are the tables that the runtime really uses; ``multiplied`` are the
    types of all matrices that activations are multiplied with; ``rounded`` tells whether anything that the
    runtime uses is not bit for bit the checkpoint's.
    """

    distances: list[Distance] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    held: dict[str, torch.Tensor] = field(default_factory=dict)
    embed: torch.Tensor | None = None
    head: torch.Tensor | None = None
    multiplied: set[GGMLType | int] = field(default_factory=set)
    rounded: bool = False

    def check(self) -> Check:
        if self.problems:
            told, more = self.problems[:TOLD_PROBLEMS], len(self.problems) - TOLD_PROBLEMS
            return Check("values", "fail", "; ".join([*told, *([f"and {more} more"] if more > 0 else ())]))
        worst = max(self.distances, key=lambda distance: distance.relative)
        text = f"{len(self.distances)} tensors are the checkpoint's"
        if worst.relative:
            text += f"; rounding moved {worst.name} ({worst.type_name}) most, by {worst.relative:.2g} of its size"
        return Check("values", "pass", text)


def compare_values(draft: GGUFFile, target: GGUFFile, tensors: Mapping[str, torch.Tensor], facts: Facts) -> Values:
    """The tensors of ``draft``, and the tables that it borrows from ``target``, against the checkpoint's.

    ``tensors``: the checkpoint's by their plain names.
    """
    values = Values()
    for tensor in draft.tensors:
        _compare_own(values, draft, tensor, tensors, facts)
    names = {tensor.name for tensor in draft.tensors}
    for name in required_names(facts.n_layer):
        if name not in names:
            values.problems.append(f"the file lacks {name}")
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
        if name not in names and (stored := checkpoint_name(name)) in tensors:
            values.problems.append(f"the file lacks {name}, which the checkpoint has ({stored})")
    for name in TABLES:
        if name not in names:
            _compare_borrowed(values, target, name, tensors)
    return values


def _compare_own(
    values: Values, file: GGUFFile, tensor: GGUFTensor, tensors: Mapping[str, torch.Tensor], facts: Facts
) -> None:
    import torch

    name, stored = tensor.name, checkpoint_name(tensor.name)
    if stored is None:
        values.problems.append(f"{name} is no tensor of a published draft")
        return
    got = _read(values, file, tensor)
    if got is None:
        return
    want = tensors.get(stored)
    if want is None:
        # An anchor-first draft without a Markov head runs with one of zeros.
        if not name.startswith("markov_") or bool(got.any()):
            values.problems.append(f"{name} is in the file, but the checkpoint has no {stored}")
        return
    if got.dim() < want.dim():
        # llama.cpp's quantiser writes no trailing dimension of 1: conf_proj.weight [h + R, 1] is [h + R] then.
        got = got.reshape((1,) * (want.dim() - got.dim()) + tuple(got.shape))
    width = want.shape[-1]
    if name == "conf_proj.weight" and got.shape[-1] > width and not bool(got[:, width:].any()):
        got = got[:, :width]  # columns of zeros for Markov features that the head does not look at
    if got.shape != want.shape:
        problem = f"{name} is {list(got.shape)}, but the checkpoint's {stored} {list(want.shape)}"
        values.problems.append(problem)
        return
    held = _held(want, tensor)
    limit = EXPLAINED.get(GGMLType(tensor.type), EXPLAINED_OTHERWISE)
    apart = distance(got, want)
    changed = held is not None and not torch.equal(held, want.float())
    off = distance(got, held) if held is not None and changed else apart
    if held is not None and off > SAME[GGMLType(tensor.type)]:
        problem = f"{name} is {off:.2g} of its size away from {stored} rounded to {tensor.type_name}"
        values.problems.append(problem + _looks(got, stored, tensors, facts))
    elif apart > limit:
        problem = f"{name} is {apart:.2g} of its size away from {stored}, where {tensor.type_name} explains {limit:.2g}"
        values.problems.append(problem + _looks(got, stored, tensors, facts))
    elif off and (row := wrong_row(got, want if held is None else held, limit)):
        values.problems.append(f"row {row[0]} of {name} is {row[1]:.2g} of its size away from that of {stored}")
    elif held is None and abs((factor := scale(got, want)) - 1) > limit**2:
        # Rounding is not along the values: it leaves the size to within the square of its distance.
        values.problems.append(f"{name} is {stored} times {factor:.3g}, which rounding to {tensor.type_name} is not")
    values.distances.append(Distance(name, tensor.type_name, apart, limit))
    changed |= held is None
    values.rounded |= changed
    result = got if held is None else held
    if name == "token_embd.weight":
        values.embed = result
    elif name == "output.weight":
        values.head = result
    elif changed:
        values.held[stored] = result
    if len(tensor.shape) > 1 and min(tensor.shape) > 1 and name not in ("token_embd.weight", "markov_w1.weight"):
        values.multiplied.add(tensor.type)


def _held(want: torch.Tensor, tensor: GGUFTensor) -> torch.Tensor | None:
    """``want`` as ``tensor``'s type holds it, with the zeros that fill up its rows there; None if that is unknown."""
    from torch.nn.functional import pad

    width = want.shape[-1]
    held = hold(pad(want, (0, tensor.shape[0] - width)) if tensor.shape[0] > width else want, tensor.type)
    return None if held is None else held[..., :width]


def _compare_borrowed(values: Values, target: GGUFFile, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    tensor = target.tensor(name) or target.tensor("token_embd.weight")
    if tensor is None:
        values.problems.append(f"the target has no {name} to borrow")
        return
    table = _read(values, target, tensor)
    if table is None:
        return
    stored = TABLES[name]
    want = tensors.get(stored)
    if want is not None and want.shape != table.shape:
        problem = f"the target's {tensor.name} is {list(table.shape)}, but the checkpoint's {stored} {list(want.shape)}"
        values.problems.append(problem)
        return
    if want is not None:
        limit = EXPLAINED.get(GGMLType(tensor.type), EXPLAINED_OTHERWISE)
        if (apart := distance(table, want)) > limit:
            problem = (
                f"the file borrows the target's {tensor.name}, which is {apart:.2g} of its size away from the"
                f" checkpoint's {stored} ({tensor.type_name} explains {limit:.2g}): another target, or a draft that"
                " needs its own table (--shared-tensors include)"
            )
            values.problems.append(problem)
        elif apart and (row := wrong_row(table, want, limit)):
            problem = f"row {row[0]} of the target's {tensor.name}, which the file borrows, is {row[1]:.2g} of its size"
            values.problems.append(f"{problem} away from that of the checkpoint's {stored}")
        values.distances.append(Distance(f"{name} (target's)", tensor.type_name, apart, limit))
        values.rounded |= apart > 0
    if name == "token_embd.weight":
        values.embed = table
    else:
        values.head = table
        values.multiplied.add(tensor.type)


def _read(values: Values, file: GGUFFile, tensor: GGUFTensor) -> torch.Tensor | None:
    try:
        return dequantise(file, tensor)
    except (InputError, NotImplementedError, ValueError) as fault:
        values.problems.append(f"{tensor.name} ({tensor.type_name}) cannot be read: {fault}")
        return None


def _looks(got: torch.Tensor, own: str, tensors: Mapping[str, torch.Tensor], facts: Facts) -> str:
    mixup = find_mixup(got, own, tensors, facts)
    return f" ({mixup})" if mixup else ""
