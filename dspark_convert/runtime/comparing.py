"""One tensor of a file against the one tensor of the checkpoint that it has to hold.

The distance is the root mean square of the difference over that of the checkpoint's tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark_convert.errors import InputError
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.runtime.distance import distance, scale
from dspark_convert.runtime.mixups import find_mixup
from dspark_convert.runtime.rounding import dequantise, encoded, hold, same_fours
from dspark_convert.runtime.rows import wrong_row
from dspark_convert.runtime.stored import Stored
from dspark_convert.tensors import precision

if TYPE_CHECKING:
    import torch

    from dspark_convert.reference.facts import Facts

#: what a file may differ from an independent rounding to its type, where there is one
SAME = {GGMLType.F32: 1e-6, GGMLType.F16: 1e-6, GGMLType.BF16: 1e-6, GGMLType.Q8_0: 1e-3, GGMLType.MXFP4: 0.0}

#: what reading a tensor of a damaged or unknown kind raises
UNREADABLE = (InputError, NotImplementedError, ValueError)


def explained(tensor: GGUFTensor) -> float:
    """The distance that rounding to the tensor's type can explain."""
    return precision.explained(tensor.type)


@dataclass(frozen=True)
class Part:
    """``label`` is how the tensor is called in messages, ``stored`` in the checkpoint; ``index`` in a stack."""

    file: GGUFFile
    tensor: GGUFTensor
    index: int | None
    label: str
    stored: str


@dataclass(frozen=True)
class Compared:
    """``result``: the values as the file's type holds them, None if they were not computed.

    ``changed``: they are not bit for bit the checkpoint's.
    """

    problems: tuple[str, ...] = ()
    distance: float = 0.0
    changed: bool = False
    result: torch.Tensor | None = None


def compare_part(part: Part, tensors: Stored, facts: Facts, *, explain: bool) -> Compared:
    """``explain``: say of a wrong tensor how far away it is and what it looks like, which takes its time."""
    import torch

    name, label, stored, tensor = part.tensor.name, part.label, part.stored, part.tensor
    exact = tensor.type == GGMLType.MXFP4 and stored in tensors and tensors.fours(stored) is not None
    try:
        if exact and _is_copied(part, tensors):
            return Compared()
        if exact and not explain:
            return Compared((f"{label} is not {stored} bit for bit",))
        got = dequantise(part.file, tensor, part.index)
    except UNREADABLE as fault:
        return Compared((f"{label} ({tensor.type_name}) cannot be read: {fault}",))
    if stored not in tensors:
        # An anchor-first draft without a Markov head runs with one of zeros.
        if name.startswith("markov_") and not bool(got.any()):
            return Compared()
        return Compared((f"{label} is in the file, but the checkpoint has no {stored}",))
    want = tensors[stored]
    got = _aligned(got, want, name)
    if got.shape != want.shape:
        return Compared((f"{label} is {list(got.shape)}, but the checkpoint's {stored} {list(want.shape)}",))
    held = want.float() if exact else _held(want, tensor)
    limit = explained(tensor)
    apart = distance(got, want)
    changed = held is not None and not torch.equal(held, want.float())
    off = distance(got, held) if held is not None and changed else apart
    problem = ""
    if held is not None and off > SAME[GGMLType(tensor.type)]:
        rounded = (
            f"{stored}, which {tensor.type_name} holds exactly" if exact else f"{stored} rounded to {tensor.type_name}"
        )
        problem = f"{label} is {off:.2g} of its size away from {rounded}"
    elif apart > limit:
        problem = (
            f"{label} is {apart:.2g} of its size away from {stored}, where {tensor.type_name} explains {limit:.2g}"
        )
    if problem and explain and (mixup := find_mixup(got, stored, tensors, facts)):
        problem += f" ({mixup})"
    elif not problem and off and (row := wrong_row(got, want if held is None else held, limit)):
        problem = f"row {row[0]} of {label} is {row[1]:.2g} of its size away from that of {stored}"
    elif not problem and held is None and abs((factor := scale(got, want)) - 1) > precision.size_limit(limit):
        problem = f"{label} is {stored} times {factor:.3g}, which rounding to {tensor.type_name} is not"
    result = got if held is None else held
    return Compared((problem,) if problem else (), apart, changed or held is None, result)


def _is_copied(part: Part, tensors: Stored) -> bool:
    """Whether the checkpoint's FP4 is the same in the file; nothing has to be computed then."""
    fours = tensors.fours(part.stored)
    if fours is None or part.file.byte_order == "big":
        return False
    data, _ = encoded(part.file, part.tensor, part.index)
    return same_fours(data, *fours)


def _aligned(got: torch.Tensor, want: torch.Tensor, name: str) -> torch.Tensor:
    """``got`` in the checkpoint's number of dimensions, without the zeros that fill up its rows."""
    if got.dim() < want.dim():
        # llama.cpp's quantiser writes no trailing dimension of 1: conf_proj.weight [h + R, 1] is [h + R] then.
        got = got.reshape((1,) * (want.dim() - got.dim()) + tuple(got.shape))
    elif got.dim() > want.dim():
        got = got.flatten(0, got.dim() - want.dim())
    width = want.shape[-1]
    if name == "conf_proj.weight" and got.shape[-1] > width and not bool(got[:, width:].any()):
        got = got[:, :width]  # columns of zeros for Markov features that the head does not look at
    return got


def _held(want: torch.Tensor, tensor: GGUFTensor) -> torch.Tensor | None:
    """``want`` as ``tensor``'s type holds it, with the zeros that fill up its rows there; None if that is unknown."""
    from torch.nn.functional import pad

    width = want.shape[-1]
    held = hold(pad(want, (0, tensor.shape[0] - width)) if tensor.shape[0] > width else want, tensor.type)
    return None if held is None else held[..., :width]
