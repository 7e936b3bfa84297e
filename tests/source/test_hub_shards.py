"""Which bytes are asked for, and which are kept of what comes."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from dspark_convert.source.hub_shards import MAX_GAP, cut, make_shard, requests, rest
from dspark_convert.source.safetensors_header import TensorRef


def ref(name: str, offset: int, nbytes: int) -> TensorRef:
    return TensorRef(name, Path("s"), "U8", (nbytes,), offset, nbytes)


def test_adjacent_tensors_are_one_range() -> None:
    shard = make_shard("s", 100, [ref("b", 30, 20), ref("a", 10, 20), ref("none", 50, 0), ref("c", 60, 1)], None)
    assert shard.wanted == [(10, 50), (60, 61)]
    assert (shard.nbytes, [each.name for each in shard.tensors]) == (41, ["a", "b", "none", "c"])


def test_small_gaps_are_read_through() -> None:
    big = 100 << 20
    assert requests([(0, big), (big + 1000, big + 2000)]) == [(0, big + 2000)]
    assert requests([(0, big), (big + MAX_GAP + 1, 2 * big)]) == [(0, big), (big + MAX_GAP + 1, 2 * big)]


@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_allowed(seed: int) -> None:
    """Alternating small tensors: the gaps alone would double what is read."""
    source = random.Random(seed)
    wanted, position = [], 0
    for _ in range(source.randrange(1, 300)):
        position += source.choice((1, 50, 4000, 300_000))
        wanted.append((position, position + source.randrange(1, 100_000)))
        position = wanted[-1][1]
    asked = requests(wanted)
    needed = sum(end - begin for begin, end in wanted)
    assert needed <= sum(end - begin for begin, end in asked) <= needed * 1.005
    assert all(any(b <= begin and end <= e for b, e in asked) for begin, end in wanted)
    assert all(left[1] < right[0] for left, right in pairwise(asked))


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_the_wanted_bytes(seed: int) -> None:
    """In whatever pieces the bytes come, and wherever an earlier run stopped."""
    source = random.Random(seed)
    data = source.randbytes(3000)
    marks = sorted(source.sample(range(3001), 10))
    wanted = list(zip(marks[::2], marks[1::2], strict=True))
    expected = b"".join(data[begin:end] for begin, end in wanted)
    done = source.randrange(len(expected) + 1)
    left = rest(wanted, done)
    assert sum(end - begin for begin, end in left) == len(expected) - done
    position, kept = 0, b""
    while position < len(data):
        chunk = data[position : position + source.randrange(1, 500)]
        kept += b"".join(cut(left, position, chunk))
        position += len(chunk)
    assert kept == expected[done:]
