"""Tells of a whole list of merges whether each is sound, by hashes of its pieces.

The dictionary of the vocabulary would be asked 450,000 times, and almost each time for something that
is in no cache: that takes three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

#: texts hashed together: what that takes stays in the cache
AT_ONCE = 1 << 13

#: odd, so that it has an inverse
_BASE = 0x9E3779B97F4A7C15
_MODULUS = 1 << 64


def all_known(merges: Sequence[str], tokens: Sequence[str]) -> bool:
    """Whether each of ``merges`` is "a b", and a, b and ab are among ``tokens``, of which there is one.

    False if a token has U+0000 in it. Another text with the hash of a token (one in 2**64) counts as known.
    """
    try:
        known = np.sort(np.concatenate([_tokens(some) for some in _in_parts(tokens)]))
        if len(known) != len(tokens):
            return False
        for some in _in_parts(merges):
            # In order, the search stays in the cache.
            needed = np.sort(_pieces_and_results(some))
            if not len(needed) or (known.take(np.searchsorted(known, needed), mode="clip") != needed).any():
                return False
    except UnicodeEncodeError:
        return False
    return True


def _in_parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE))


def _tokens(tokens: Sequence[str]) -> Hashes:
    data = _joined(tokens, "\0")
    return _hashed(data, np.flatnonzero(data == 0))[0]


def _pieces_and_results(merges: Sequence[str]) -> Hashes:
    """Three for each merge; none if they are not all "a b"."""
    data = _joined(merges, "\0")
    ends = np.flatnonzero((data == ord(" ")) | (data == 0))
    if len(ends) != 2 * len(merges) or data[ends[1::2]].any() or not data[ends[::2]].all():
        return np.empty(0, np.uint64)
    pieces, lengths = _hashed(data, ends)
    left, right = pieces[::2], pieces[1::2]
    return np.concatenate([pieces, left + right * _powers(_BASE, int(lengths.max()) + 1)[lengths[::2]]])


def _joined(texts: Sequence[str], end: str) -> NDArray[np.uint8]:
    return np.frombuffer((end.join(texts) + end).encode(), np.uint8)


def _hashed(data: NDArray[np.uint8], ends: NDArray[np.intp]) -> tuple[Hashes, NDArray[np.intp]]:
    """Hash and length of each text in ``data``, behind each of which one of ``ends`` stands.

    The hash of the bytes b0, b1, b2 ... is b0 + b1 * BASE + b2 * BASE**2 ...: a difference of two running sums.
    """
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(_powers(_BASE, len(data)) * data, out=sums[1:])
    starts = np.concatenate([[0], ends[:-1] + 1])
    return (sums[ends] - sums[starts]) * _powers(pow(_BASE, -1, _MODULUS), len(data))[starts], ends - starts


def _powers(base: int, count: int) -> Hashes:
    """``base`` to the power of 0 to ``count`` - 1."""
    return _doubled(base, (count - 1).bit_length())[:count]


@cache
def _doubled(base: int, times: int) -> Hashes:
    """``base`` to the power of 0 to 2**times - 1."""
    powers = np.ones(1, np.uint64)
    for _ in range(times):
        powers = np.concatenate([powers, powers * np.uint64(pow(base, len(powers), _MODULUS))])
    return powers
