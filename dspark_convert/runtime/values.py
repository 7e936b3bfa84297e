"""Does every tensor of the file hold the checkpoint's values? Compared one by one, without running anything.

The distance is the root mean square of the difference over that of the checkpoint's tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.runtime.comparing import UNREADABLE, Part, compare_part, explained
from dspark_convert.runtime.distance import distance
from dspark_convert.runtime.published import HEADS, TABLES, checkpoint_name, required_names
from dspark_convert.runtime.published_stages import required_stage_names, stage_names
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.rounding import INPUTS, dequantise
from dspark_convert.runtime.rows import wrong_row
from dspark_convert.runtime.stored import Stored

if TYPE_CHECKING:
    import torch

    from dspark_convert.reference.facts import Facts
    from dspark_convert.reference.inputs import Rounding

#: heads that a checkpoint may have
OPTIONAL = {name: head for name, head in HEADS.items() if name.startswith(("markov_", "conf_proj."))}

#: experts of drafts with more numbers are not kept
SMALL = 50_000_000

#: of what is wrong, so much is told
TOLD_PROBLEMS = 4


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
    runtime uses is not bit for bit the checkpoint's. Experts of a large draft are not kept in ``held``: in
    ``unkept`` (checkpoint names) are the tensor and the expert's number for those that the file rounds.
    ``inputs`` (checkpoint names) is what llama.cpp rounds the activations to that a matrix is multiplied with.
    """

    distances: list[Distance] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    held: dict[str, torch.Tensor] = field(default_factory=dict)
    embed: torch.Tensor | None = None
    head: torch.Tensor | None = None
    multiplied: set[GGMLType | int] = field(default_factory=set)
    inputs: dict[str, Rounding] = field(default_factory=dict)
    rounded: bool = False
    unkept: dict[str, tuple[str, int]] = field(default_factory=dict)

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

    ``tensors``: the checkpoint's by their plain names, as they are stored. Experts are compared one by one.
    """
    values = Values()
    stored = Stored(tensors, facts.stages.tile if facts.stages else 0)
    for tensor in draft.tensors:
        _compare_own(values, draft, tensor, stored, facts)
    names = {tensor.name for tensor in draft.tensors}
    for name in required_names(facts.n_layer) if facts.stages is None else required_stage_names(facts.n_layer):
        if name not in names:
            values.problems.append(f"the file lacks {name}")
    for name, head in OPTIONAL.items():
        if name not in names and head in stored:
            values.problems.append(f"the file lacks {name}, which the checkpoint has ({head})")
    for name in TABLES:
        if name not in names:
            _compare_borrowed(values, target, name, stored)
    return values


def _compare_own(values: Values, file: GGUFFile, tensor: GGUFTensor, tensors: Stored, facts: Facts) -> None:
    """One tensor of the draft, or each expert's part of it."""
    name = tensor.name
    names = [TABLES[name]] if name in TABLES else _sources(name, facts)
    if names is None:
        values.problems.append(f"{name} is no tensor of a published draft")
        return
    stacked = len(names) > 1
    if stacked and tensor.shape[2:] != (len(names),):
        values.problems.append(f"{name} is {list(tensor.shape)}, but the checkpoint has {len(names)} experts")
        return
    small = sum(prod(tensors.shape(stored)) for stored in tensors) < SMALL if stacked else True
    furthest = 0.0
    for index, stored in enumerate(names):
        label = f"{name}, expert {index}," if stacked else name
        part = Part(file, tensor, index if stacked else None, label, stored)
        explain = len(values.problems) < TOLD_PROBLEMS
        compared = compare_part(part, tensors, facts, explain=explain)
        values.problems += compared.problems
        furthest = max(furthest, compared.distance)
        values.rounded |= compared.changed
        if compared.result is None:
            continue
        if name == "token_embd.weight":
            values.embed = compared.result
        elif name == "output.weight":
            values.head = compared.result
        elif compared.changed and small:
            values.held[stored] = compared.result
        elif compared.changed:
            values.unkept[stored] = (name, index)
    values.distances.append(Distance(name, tensor.type_name, furthest, explained(tensor)))
    if len(tensor.shape) > 1 and min(tensor.shape) > 1 and name not in ("token_embd.weight", "markov_w1.weight"):
        values.multiplied.add(tensor.type)
        if tensor.type in INPUTS:
            values.inputs |= dict.fromkeys(names, INPUTS[GGMLType(tensor.type)])


def _sources(name: str, facts: Facts) -> list[str] | None:
    """The checkpoint's names of a GGUF's tensor."""
    if facts.stages is not None:
        return stage_names(name, facts.stages.n_expert)
    stored = checkpoint_name(name)
    return None if stored is None else [stored]


def _compare_borrowed(values: Values, target: GGUFFile, name: str, tensors: Stored) -> None:
    tensor = target.tensor(name) or target.tensor("token_embd.weight")
    if tensor is None:
        values.problems.append(f"the target has no {name} to borrow")
        return
    try:
        table = dequantise(target, tensor)
    except UNREADABLE as fault:
        values.problems.append(f"{tensor.name} ({tensor.type_name}) cannot be read: {fault}")
        return
    stored = TABLES[name]
    want = tensors.get(stored)
    if want is not None and want.shape != table.shape:
        problem = f"the target's {tensor.name} is {list(table.shape)}, but the checkpoint's {stored} {list(want.shape)}"
        values.problems.append(problem)
        return
    if want is not None:
        limit = explained(tensor)
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
        if tensor.type in INPUTS:
            values.inputs[stored] = INPUTS[GGMLType(tensor.type)]
