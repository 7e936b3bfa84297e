"""The table of a reduced vocabulary: which token of the target each of the draft's tokens is.

Checkpoints (speculators' ``d2t``) keep offsets, entry i being the target's id minus i; a GGUF keeps the ids. Each id
stands for one draft token, so ids are all different, while offsets repeat wherever two neighbouring ids are in use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.findings import Finding, error, warning
from dspark_convert.tensors.casts import INTEGER_DTYPES

FIX = "convert the checkpoint as it was published"
#: of fewer entries it may be chance that offsets are all different
FEW = 16


def judge_ids(name: str, values: bytes | memoryview, dtype: str, vocab_size: int) -> list[Finding]:
    """What is wrong with the offsets ``values``, a vector of ``dtype`` (I64 or I32), as ids below ``vocab_size``.

    ``name`` is the table's in the checkpoint.
    """
    offsets: NDArray[np.int64] = np.frombuffer(values, INTEGER_DTYPES[dtype]).astype(np.int64)
    places = np.arange(offsets.size)
    # not by their sum, which the largest numbers would turn negative
    outside = (offsets < -places) | (offsets >= vocab_size - places)
    twice = offsets.size - np.unique(offsets + places).size
    if not outside.any() and not twice:
        return [_doubt(name)] if offsets.size >= FEW and _are_ids(offsets, vocab_size) else []
    wrong = _wrong(offsets, outside, twice, vocab_size)
    if _are_ids(offsets, vocab_size):
        message = f"{name} holds no offsets but ids: as offsets they give {wrong}."
        return [error("d2t-absolute", name, message, "subtract from each entry its own index")]
    message = f"the offsets in {name} give {wrong}."
    if outside.any():
        return [error("d2t-range", name, message, FIX)]
    return [error("d2t-duplicate", name, message, FIX)]


def judge_marks(name: str, values: bytes | memoryview, dtype: str, marks: bytes | memoryview) -> list[Finding]:
    """Whether the offsets ``values``, which are good by themselves, lead to the tokens that ``marks`` names.

    ``marks``: speculators' ``t2d``, a byte for each of the target's tokens, not 0 for those that the draft knows.
    """
    offsets: NDArray[np.int64] = np.frombuffer(values, INTEGER_DTYPES[dtype]).astype(np.int64)
    known = np.flatnonzero(np.frombuffer(marks, np.uint8))
    meant = np.unique(offsets + np.arange(offsets.size))
    if np.array_equal(meant, known):
        return []
    if np.array_equal(np.unique(offsets), known):
        message = f"{name} holds no offsets but ids: they are the tokens that t2d marks."
        return [error("d2t-absolute", name, message, "subtract from each entry its own index")]
    message = (
        f"{name} leads to {np.setdiff1d(meant, known).size:,} tokens that t2d does not mark, and t2d marks "
        f"{np.setdiff1d(known, meant).size:,} that it does not lead to: one of the two is of another draft."
    )
    return [warning("d2t-disagrees", name, message, FIX)]


def _are_ids(values: NDArray[np.int64], vocab_size: int) -> bool:
    """Whether ``values`` are a table of ids themselves."""
    inside = ((values >= 0) & (values < vocab_size)).all()
    return bool(inside) and np.unique(values).size == values.size


def _wrong(offsets: NDArray[np.int64], outside: NDArray[Any], twice: int, vocab_size: int) -> str:
    if outside.any():
        first = int(np.argmax(outside))
        return (
            f"{np.count_nonzero(outside):,} ids outside the vocabulary of {vocab_size:,}, "
            f"the first {int(offsets[first]) + first} at {first}"
        )
    return f"{twice:,} of {offsets.size:,} draft tokens an id that is taken already"


def _doubt(name: str) -> Finding:
    message = f"{name} is read as offsets, but its entries are all different, as ids themselves are and offsets seldom."
    return warning("d2t-absolute", name, message, "ask the draft's author which of the two they are")
