"""Ways to break the good draft file: each is a function that changes a ``DraftFile``."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.draft_file import HIDDEN, RANK, TYPES, DraftFile

Change = Callable[[DraftFile], None]


def put(**values: Any) -> Change:
    """Set keys (double underscore for a dot) to (type, value[, item type]), or None to drop them."""

    def change(file: DraftFile) -> None:
        for name, value in values.items():
            key = name.replace("__", ".")
            if value is None:
                del file.kv[key]
            else:
                file.kv[key] = (*value, None)[:3]

    return change


def both(name: str, value: tuple[Any, ...]) -> Change:
    """Set the runtime's key and ours alike."""
    return put(**{f"dflash__{name}": value, f"dspark__{name}": value})


def shape(name: str, kind: str | None, dimensions: tuple[int, ...]) -> Change:
    def change(file: DraftFile) -> None:
        old = file.tensors.get(name, ("F32", ()))[0]
        file.tensors[name] = (kind or old, dimensions)

    return change


def drop(*names: str) -> Change:
    def change(file: DraftFile) -> None:
        for name in names:
            del file.tensors[name]

    return change


def data(name: str, make: Callable[[int], bytes]) -> Change:
    def change(file: DraftFile) -> None:
        file.data[name] = make(int(np.prod(file.tensors[name][1])))

    return change


def quantised(kind: str, good: bytes, last: bytes) -> Change:
    """``fc`` in ``kind``, of blocks ``good`` and a ``last`` one."""

    def change(file: DraftFile) -> None:
        shape = file.tensors["fc.weight"][1]
        file.tensors["fc.weight"] = (kind, shape)
        file.data["fc.weight"] = good * (shape[0] * shape[1] // TYPES[kind][1] - 1) + last

    return change


def chain(*changes: Change) -> Change:
    def change(file: DraftFile) -> None:
        for one in changes:
            one(file)

    return change


def reduced(ids: list[int], kind: str = "I64") -> Change:
    """A draft vocabulary of its own with these ids of the target."""
    letter = "q" if kind == "I64" else "f"
    return chain(
        shape("d2t", kind, (len(ids),)),
        data("d2t", lambda _count: struct.pack(f"<{len(ids)}{letter}", *ids)),
        shape("output.weight", "F32", (HIDDEN, len(ids))),
        shape("markov_w2.weight", None, (RANK, len(ids))),
    )


def bare_dflash(file: DraftFile) -> None:
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
        del file.tensors[name]
    for key in ("dflash.has_confidence_head", "dspark.markov_rank", "dspark.markov_head_type"):
        del file.kv[key]


def values_gone(file: DraftFile) -> None:
    for name in [name for name in file.tensors if name.endswith("attn_v.weight")]:
        del file.tensors[name]
