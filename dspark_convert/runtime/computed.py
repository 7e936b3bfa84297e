"""Two tensors of a file that are no copies: ids of a reduced vocabulary, and the frequencies of a part of each head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType

if TYPE_CHECKING:
    import torch

IDS = "d2t"
FREQUENCIES = "rope_freqs.weight"

#: a pair whose frequency is divided by as much as this does not turn
STILL = 1e20


def compare_ids(file: GGUFFile, tensor: GGUFTensor, offsets: torch.Tensor | None) -> str:
    """What is wrong with ``d2t``, the target's id of each token of the draft; "" if nothing. InputError as of a read.

    ``offsets`` [draft vocabulary]: the checkpoint's, from a draft's id to the target's.
    """
    if offsets is None:
        return f"{IDS} is in the file, but the checkpoint has no {IDS}"
    if tensor.type != GGMLType.I64:
        return f"{IDS} is {tensor.type_name}, but llama.cpp takes I64 alone"
    found = np.frombuffer(file.data(tensor), "<i8" if file.byte_order == "little" else ">i8")
    want = offsets.long().numpy() + np.arange(len(offsets))
    if found.shape != want.shape:
        return f"{IDS} has {len(found):,} ids, but the checkpoint {len(want):,}"
    wrong = np.flatnonzero(found != want)
    if not len(wrong):
        return ""
    first = int(wrong[0])
    told = (
        f"{IDS} leads token {first} of the draft to {found[first]} of the target, but the checkpoint to {want[first]}"
    )
    if np.array_equal(found, offsets.numpy()):
        return f"{told} (it holds the checkpoint's offsets, where llama.cpp takes ids)"
    return f"{told}, and {len(wrong):,} of {len(want):,} so"


def compare_frequencies(file: GGUFFile, tensor: GGUFTensor, pairs: int, turning: int) -> str:
    """What is wrong with the divisors of the frequencies, one a pair of a head; "" if nothing. InputError as above.

    Of ``pairs`` the first ``turning`` turn as they are, the others not at all.
    """
    if tensor.type != GGMLType.F32 or tensor.shape != (pairs,):
        return f"{FREQUENCIES} is {tensor.type_name} {list(tensor.shape)}, but llama.cpp takes F32 [{pairs}]"
    found = np.frombuffer(file.data(tensor), "<f4" if file.byte_order == "little" else ">f4")
    right = np.where(np.arange(pairs) < turning, found == 1, found >= STILL)
    if right.all():
        return ""
    first = int(np.flatnonzero(~right)[0])
    want = "turns undivided" if first < turning else "does not turn"
    return f"{FREQUENCIES} divides the frequency of pair {first} by {found[first]:.6g}, but the checkpoint's {want}"
