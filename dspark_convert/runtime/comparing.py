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
from dspark_convert.runtime.mixups import OF_HEADS, find_mixup
from dspark_convert.runtime.rounding import dequantise, encoded, hold, same_fours
from dspark_convert.runtime.rows import wrong_row
from dspark_convert.runtime.stored import Stored
from dspark_convert.tensors import precision

if TYPE_CHECKING:
    import torch

    from dspark_convert.reference.facts import Facts

#: what a file may differ from an independent rounding to its type, where there is one
SAME = {
    **dict.fromkeys((GGMLType.F32, GGMLType.F16, GGMLType.BF16), 1e-6),
    GGMLType.Q8_0: 1e-3,
    **dict.fromkeys((GGMLType.MXFP4, GGMLType.NVFP4), 0.0),
}

#: what reading a tensor of a damaged or unknown kind raises
UNREADABLE = (InputError, NotImplementedError, ValueError)


def explained(tensor: GGUFTensor) -> float:
    """The distance that rounding to the tensor's type can explain."""
    return precision.explained(tensor.type)


@dataclass(frozen=True)
class Part:
    """``label`` is how the tensor is called in messages, ``stored`` in the checkpoint; ``index`` in a stack.

    ``factor``: what llama.cpp multiplies it by.
    """

    file: GGUFFile
    tensor: GGUFTensor
    index: int | None
    label: str
    stored: str
    factor: float = 1.0


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
    exact = stored in tensors and _is_kept(tensor, tensors, stored)
    try:
        fours = exact and tensors.fours(stored) is not None
        if fours and _is_copied(part, tensors):
            return Compared()
        if fours and not explain:
            return Compared((f"{label} is not {stored} bit for bit",))
        got = _times(dequantise(part.file, tensor, part.index), part.factor)
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
    got = in_stored_order(got, stored, facts)
    held = want if exact else _held(want, tensor)
    limit = explained(tensor)
    apart = distance(got, want)
    changed = held is not None and not exact and not torch.equal(held, want.float())
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


def in_stored_order(got: torch.Tensor, stored: str, facts: Facts) -> torch.Tensor:
    """``got`` with the numbers of each head as the checkpoint has them; it may pair neighbours, a file does not.

    llama.cpp rotates numbers i and i + dims / 2 of a head, so those of a pair 2i and 2i + 1 stand there.
    """
    import torch

    rotation = facts.rotation
    if rotation is None or not rotation.neighbours or not stored.endswith(OF_HEADS):
        return got
    heads = got.reshape(-1, facts.head_dim, *got.shape[1:])
    first, second = heads[:, : rotation.dims].chunk(2, 1)
    turned = torch.stack((first, second), 2).flatten(1, 2)
    return torch.cat((turned, heads[:, rotation.dims :]), 1).reshape(got.shape)


def _is_kept(tensor: GGUFTensor, tensors: Stored, stored: str) -> bool:
    """Whether the file's type holds the checkpoint's codes of four bits as they are."""
    if tensor.type == GGMLType.NVFP4:
        return tensors.is_nvfp4(stored)
    return tensor.type == GGMLType.MXFP4 and tensors.fours(stored) is not None


def _times(values: torch.Tensor, factor: float) -> torch.Tensor:
    """In float64, which holds NVFP4's products exactly."""
    return values if factor == 1 else values.double() * factor


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
