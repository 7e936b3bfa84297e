"""Does every tensor of the file hold the checkpoint's values? Compared one by one, without running anything.

The distance is the root mean square of the difference over that of the checkpoint's tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.runtime.comparing import UNREADABLE, Compared, Part, compare_part, explained
from dspark_convert.runtime.computed import FREQUENCIES, IDS, compare_frequencies, compare_ids
from dspark_convert.runtime.published import HEADS, TABLES, checkpoint_name, required_names, scale_name
from dspark_convert.runtime.published_stages import required_stage_names, stage_names
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.rounding import INPUTS, dequantise
from dspark_convert.runtime.stored import Stored
from dspark_convert.runtime.tables import EMBED, MASK_ROW, compare_borrowed, compare_copied, lender

if TYPE_CHECKING:
    import torch

    from dspark_convert.reference.facts import Facts
    from dspark_convert.reference.inputs import Rounding

#: tensors of which rows are taken, or that are no matrix: activations are not multiplied with them
NOT_MULTIPLIED = ("token_embd.", "markov_w1.", "selector_predecessor.", "selector_successor.")

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

    ``tensors``: the checkpoint's by their plain names, as they are stored, ``tables.MASK_ROW`` among them if it has
    one. Experts are compared one by one.
    """
    values, names = Values(), {tensor.name for tensor in draft.tensors}
    stored = Stored(_with_mask_row(tensors, facts), facts.stages.tile if facts.stages else 0)
    seen = {MASK_ROW, IDS, *TABLES.values()}
    for tensor in draft.tensors:
        name = tensor.name
        if name in TABLES and TABLES[name] not in stored:
            compared = compare_copied(draft, tensor, target, stored, facts.mask_token_id)
            _take_table(values, name, tensor, compared, name)
        elif name in (IDS, FREQUENCIES):
            _compare_computed(values, draft, tensor, stored, facts)
        elif not _is_scale(name, names):
            seen.update(_compare_own(values, draft, tensor, stored, facts))
    values.problems += _missing(names, seen, stored, facts)
    for name in TABLES:
        if name not in names:
            compared = compare_borrowed(draft, target, name, stored, facts.mask_token_id)
            label = f"{name} (target's)" if TABLES[name] in stored else None
            _take_table(values, name, lender(draft, target, name)[1], compared, label)
    return values


def _missing(names: set[str], seen: set[str], stored: Stored, facts: Facts) -> Iterator[str]:
    """What a file with the tensors ``names``, which are the checkpoint's ``seen``, lacks of it."""
    for name in required_names(facts) if facts.stages is None else required_stage_names(facts.n_layer):
        if name not in names:
            yield f"the file lacks {name}"
            seen.update(_sources(name, facts) or ())
    if IDS in stored and IDS not in names:
        yield f"the file lacks {IDS}, which the checkpoint has"
    if FREQUENCIES not in names and facts.gemma4 and facts.gemma4.turning_pairs < facts.head_dim // 2:
        yield f"the file lacks {FREQUENCIES}, without which all pairs of a head turn"
    for name, head in HEADS.items():
        if name not in names and head in stored:
            yield f"the file lacks {name}, which the checkpoint has ({head})"
            seen.add(head)
    if left := [name for name in stored if name not in seen]:
        more = f", nor {len(left) - 1:,} more" if len(left) > 1 else ""
        yield f"nothing in the file is the checkpoint's {left[0]}{more}"


def _with_mask_row(tensors: Mapping[str, torch.Tensor], facts: Facts) -> Mapping[str, torch.Tensor]:
    """With the mask token's row in the checkpoint's own embeddings, if it has both."""
    embed = TABLES[EMBED]
    if MASK_ROW not in tensors or embed not in tensors:
        return tensors
    table = tensors[embed].clone()
    table[facts.mask_token_id] = tensors[MASK_ROW]
    return {**tensors, embed: table}


def _is_scale(name: str, names: set[str]) -> bool:
    """Whether it is the number beside a matrix of the file: the two are compared as one."""
    matrix = name.removesuffix("scale") + "weight"
    return name.endswith(".scale") and matrix in names and scale_name(matrix) == name


def _compare_computed(values: Values, file: GGUFFile, tensor: GGUFTensor, tensors: Stored, facts: Facts) -> None:
    try:
        if tensor.name == IDS:
            problem = compare_ids(file, tensor, tensors.get(IDS))
        elif facts.gemma4 is not None:
            problem = compare_frequencies(file, tensor, facts.head_dim // 2, facts.gemma4.turning_pairs)
        else:
            problem = f"{tensor.name} is in the file, but the checkpoint's frequencies are divided by nothing"
    except UNREADABLE as fault:
        problem = f"{tensor.name} ({tensor.type_name}) cannot be read: {fault}"
    values.problems += [problem] if problem else []
    values.distances.append(Distance(tensor.name, tensor.type_name, 0.0, 0.0))


def _compare_own(values: Values, file: GGUFFile, tensor: GGUFTensor, tensors: Stored, facts: Facts) -> list[str]:
    """One tensor of the draft, or each expert's part of it; the checkpoint's names of what it has to hold."""
    name = tensor.name
    names = [TABLES[name]] if name in TABLES else _sources(name, facts)
    if names is None:
        values.problems.append(f"{name} is no tensor of a published draft")
        return []
    stacked = len(names) > 1
    if stacked and tensor.shape[2:] != (len(names),):
        values.problems.append(f"{name} is {list(tensor.shape)}, but the checkpoint has {len(names)} experts")
        return names
    small = sum(prod(tensors.shape(stored)) for stored in tensors) < SMALL if stacked else True
    try:
        factor, labelled = _factor(file, name)
    except UNREADABLE as fault:
        values.problems.append(f"{scale_name(name)} cannot be read: {fault}")
        return names
    furthest = 0.0
    for index, stored in enumerate(names):
        label = f"{name}, expert {index}," if stacked else labelled
        part = Part(file, tensor, index if stacked else None, label, stored, factor)
        explain = len(values.problems) < TOLD_PROBLEMS
        compared = compare_part(part, tensors, facts, explain=explain)
        values.problems += compared.problems
        furthest = max(furthest, compared.distance)
        values.rounded |= compared.changed
        if compared.result is None:
            continue
        if name == EMBED:
            values.embed = compared.result
        elif name == "output.weight":
            values.head = compared.result
        elif compared.changed and small:
            values.held[stored] = compared.result
        elif compared.changed:
            values.unkept[stored] = (name, index)
    values.distances.append(Distance(name, tensor.type_name, furthest, explained(tensor)))
    if len(tensor.shape) > 1 and min(tensor.shape) > 1 and not name.startswith(NOT_MULTIPLIED):
        values.multiplied.add(tensor.type)
        if tensor.type in INPUTS:
            values.inputs |= dict.fromkeys(names, INPUTS[GGMLType(tensor.type)])
    return names


def _factor(file: GGUFFile, name: str) -> tuple[float, str]:
    """What llama.cpp multiplies the matrix ``name`` by, and what to call the product."""
    scale = file.tensor(scale_name(name) or "")
    if scale is None:
        return 1.0, name
    return float(dequantise(file, scale).reshape(-1)[0]), f"{name} times {scale.name}"


def _sources(name: str, facts: Facts) -> list[str] | None:
    """The checkpoint's names of a GGUF's tensor."""
    if facts.stages is not None:
        return stage_names(name, facts.stages.n_expert)
    stored = checkpoint_name(name, gemma4=facts.gemma4 is not None)
    return None if stored is None else [stored]


def _take_table(values: Values, name: str, tensor: GGUFTensor | None, compared: Compared, label: str | None) -> None:
    """``label``: what the table ``name`` is called among the distances; None if it was compared with nothing."""
    values.problems += compared.problems
    values.rounded |= compared.changed
    if tensor is None or compared.result is None:
        return
    if name == EMBED:
        values.embed = compared.result
    else:
        values.head = compared.result
        if len(tensor.shape) > 1:
            values.multiplied.add(tensor.type)
        if tensor.type in INPUTS:
            values.inputs[TABLES[name]] = INPUTS[GGMLType(tensor.type)]
    if label:
        values.distances.append(Distance(label, tensor.type_name, compared.distance, explained(tensor)))
