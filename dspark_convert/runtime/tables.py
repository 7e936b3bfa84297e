"""Embeddings and head that a checkpoint leaves to its target: borrowed, or copied from there into the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.runtime.comparing import UNREADABLE, Compared, explained
from dspark_convert.runtime.distance import distance
from dspark_convert.runtime.mixups import some_rows
from dspark_convert.runtime.published import TABLES
from dspark_convert.runtime.rounding import dequantise, hold
from dspark_convert.runtime.rows import wrong_row
from dspark_convert.runtime.stored import Stored

if TYPE_CHECKING:
    import torch

EMBED = "token_embd.weight"

#: among the checkpoint's tensors the mask token's own row [hidden], as MiMo's drafts have it
MASK_ROW = "mask_embedding"
MASK_FILE = "mask_embedding.pt"

#: what an independent rounding of a row may differ by
SAME_ROW = 1e-3


def lender(draft: GGUFFile, target: GGUFFile, name: str) -> tuple[GGUFFile, GGUFTensor | None]:
    """The file and the tensor that llama.cpp takes for the table ``name``, which ``draft`` lacks.

    Its own embeddings serve as head, if it has those.
    """
    if own := draft.tensor(EMBED):
        return draft, own
    return target, target.tensor(name) or target.tensor(EMBED)


def compare_borrowed(draft: GGUFFile, target: GGUFFile, name: str, stored: Stored, mask: int) -> Compared:
    """The table that stands in for ``name``, against the checkpoint's, if that has one; ``result`` is the table."""
    file, tensor = lender(draft, target, name)
    if tensor is None:
        return Compared((f"the target has no {name} to borrow",))
    try:
        table = dequantise(file, tensor)
    except UNREADABLE as fault:
        return Compared((f"{tensor.name} ({tensor.type_name}) cannot be read: {fault}",))
    called = f"the target's {tensor.name}"
    told, because = f"the file borrows {called}", "another target, or a draft that needs its own table"
    if file is draft:
        called = f"the file's own {tensor.name}"
        told, because = f"llama.cpp takes {called} for its head", "the draft needs its own"
    own = TABLES[name]
    limit, want = explained(tensor), stored.get(own)
    if want is None:
        row = stored.get(MASK_ROW) if name == EMBED else None
        if row is None or (apart := distance(table[mask], row)) <= limit:
            return Compared(result=table)
        problem = f"{told}, whose row {mask}, the mask token's, is {apart:.2g} of its size away from {MASK_FILE}"
        return Compared((problem,), result=table)
    if want.shape != table.shape:
        return Compared((f"{called} is {list(table.shape)}, but the checkpoint's {own} {list(want.shape)}",))
    problem = ""
    if (apart := distance(table, want)) > limit:
        problem = (
            f"{told}, which is {apart:.2g} of its size away from the checkpoint's {own} ({tensor.type_name} explains"
            f" {limit:.2g}): {because} (--shared-tensors include)"
        )
    elif apart and (wrong := wrong_row(table, want, limit)):
        problem = (
            f"row {wrong[0]} of {called}, which the file borrows, is {wrong[1]:.2g} of its size away from that of the"
            f" checkpoint's {own}"
        )
    return Compared((problem,) if problem else (), apart, apart > 0, table)


def compare_copied(draft: GGUFFile, tensor: GGUFTensor, target: GGUFFile, stored: Stored, mask: int) -> Compared:
    """A table of the file that the checkpoint leaves to the target, against the target's; both may be rounded.

    The mask token's row is the checkpoint's own, if it has one.
    """
    name = tensor.name
    theirs = target.tensor(name) or target.tensor(EMBED)
    if theirs is None:
        return Compared((f"{name} is in the file, but neither the checkpoint nor the target has it",))
    try:
        got, want = dequantise(draft, tensor), dequantise(target, theirs)
    except UNREADABLE as fault:
        return Compared((f"{name} ({tensor.type_name}) cannot be compared with the target's: {fault}",))
    if got.shape != want.shape:
        return Compared((f"{name} is {list(got.shape)}, but the target's {theirs.name} {list(want.shape)}",))
    problem = ""
    row = stored.get(MASK_ROW) if name == EMBED else None
    if row is not None:
        problem = _wrong_mask_row(got[mask], row, tensor, mask)
        want[mask] = got[mask]
    limit = explained(tensor) + explained(theirs)
    apart = distance(got, want)
    copied = f"the target's {theirs.name}, which the checkpoint leaves it to be"
    if not problem and apart > limit:
        problem = f"{name} is {apart:.2g} of its size away from {copied}"
        if told := some_rows(got, want):
            problem += f" ({told})"
    elif not problem and (wrong := wrong_row(got, want, limit)):
        problem = f"row {wrong[0]} of {name} is {wrong[1]:.2g} of its size away from that of {copied}"
    return Compared((problem,) if problem else (), apart, result=got)


def _wrong_mask_row(got: torch.Tensor, row: torch.Tensor, tensor: GGUFTensor, mask: int) -> str:
    held = hold(row[None], tensor.type)
    want, limit = (row, explained(tensor)) if held is None else (held[0], SAME_ROW)
    if (apart := distance(got, want)) <= limit:
        return ""
    return f"row {mask} of {tensor.name}, the mask token's, is {apart:.2g} of its size away from {MASK_FILE}"
