"""A shard cut down to the tensors that are needed: which bytes to ask for, and the file they make.

The compact file is a valid safetensors file of the shard's name: the header lists only the tensors
that are needed, in the order of their bytes, which follow without gaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dspark_convert.source.safetensors_header import TensorRef

#: bytes between two needed tensors that are cheaper to read than a second request is to make
MAX_GAP = 1 << 18
#: the bytes read in vain may be this share of the needed ones in all
MAX_WASTE = 1 / 200


@dataclass(frozen=True)
class Shard:
    """``name`` and ``header`` are the compact file's; ``file`` is its origin on the hub, of ``size`` bytes;
    ``tensors`` are those needed, by offset."""

    name: str
    file: str
    size: int
    tensors: tuple[TensorRef, ...]
    header: bytes

    @property
    def wanted(self) -> list[tuple[int, int]]:
        """Byte ranges (end exclusive) of the file on the hub, ascending, adjacent tensors in one."""
        spans: list[tuple[int, int]] = []
        for ref in self.tensors:
            if spans and spans[-1][1] == ref.offset:
                spans[-1] = (spans[-1][0], ref.offset + ref.nbytes)
            elif ref.nbytes:
                spans.append((ref.offset, ref.offset + ref.nbytes))
        return spans

    @property
    def nbytes(self) -> int:
        """Of the needed tensors."""
        return sum(ref.nbytes for ref in self.tensors)

    @property
    def compact_size(self) -> int:
        return len(self.header) + self.nbytes


def make_shard(file: str, size: int, refs: Sequence[TensorRef], metadata: Any, name: str = "") -> Shard:
    """``refs``: the needed tensors of ``file``; ``metadata``: its ``__metadata__`` or None; ``name``: if another."""
    tensors = tuple(sorted(refs, key=lambda ref: (ref.offset, ref.nbytes)))
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    position = 0
    for ref in tensors:
        end = position + ref.nbytes
        entries[ref.name] = {"dtype": ref.dtype, "shape": list(ref.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the tensors' bytes
    return Shard(name or file, file, size, tensors, len(text).to_bytes(8, "little") + text)


def requests(wanted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges to ask for: those wanted, joined over the smallest gaps."""
    allowed = int(sum(end - begin for begin, end in wanted) * MAX_WASTE)
    joined = set()
    for gap, index in sorted((right[0] - left[1], i) for i, (left, right) in enumerate(pairwise(wanted))):
        if gap > min(MAX_GAP, allowed):
            break
        allowed -= gap
        joined.add(index + 1)
    asked: list[tuple[int, int]] = []
    for index, (begin, end) in enumerate(wanted):
        if index in joined:
            asked[-1] = (asked[-1][0], end)
        else:
            asked.append((begin, end))
    return asked


def rest(wanted: Sequence[tuple[int, int]], done: int) -> list[tuple[int, int]]:
    """What is left of ``wanted`` after its first ``done`` bytes."""
    left = []
    for begin, end in wanted:
        skipped = min(done, end - begin)
        done -= skipped
        if begin + skipped < end:
            left.append((begin + skipped, end))
    return left


def cut(wanted: Sequence[tuple[int, int]], position: int, chunk: bytes) -> Iterator[memoryview]:
    """The parts of ``chunk``, which starts at byte ``position``, that are wanted."""
    view = memoryview(chunk)
    for begin, end in wanted:
        if begin >= position + len(chunk):
            return
        if end > position:
            yield view[max(0, begin - position) : end - position]
