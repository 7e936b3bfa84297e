"""How much memory a draft takes beside its target: its weights, and the keys and values that it caches.

The cache as llama.cpp lays it out by default (``llama_kv_cache`` and ``llama_kv_cache_iswa``): F16, one sequence,
keys and values of every key/value head at every position. Layers with a window keep that many positions and
one batch more. Buffers for computing come on top; they are the backend's own matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dspark_convert.draft import Draft

#: bytes of an F16 number
CACHED_BYTES = 2
#: llama.cpp's default for a batch (n_ubatch)
BATCH = 512
#: llama.cpp rounds the number of cached positions up to a multiple of it
PAD = 256


@dataclass(frozen=True)
class Memory:
    """``weights``: bytes by type, the largest first; ``cache``: bytes at ``context`` positions."""

    weights: Mapping[str, int]
    context: int
    cache: int

    @property
    def total(self) -> int:
        return sum(self.weights.values()) + self.cache

    def to_json(self) -> dict[str, Any]:
        """The ``memory`` object of the JSON outputs; bytes."""
        return {
            "weights": dict(self.weights),
            "weights_total": sum(self.weights.values()),
            "context": self.context,
            "kv_cache": self.cache,
            "kv_cache_type": "F16",
            "total": self.total,
        }


def estimate(draft: Draft, tensors: Iterable[tuple[str, int]], context: int | None = None) -> Memory:
    """The memory of ``draft`` with ``tensors`` (type, bytes) at ``context`` positions, by default its context_length:
    llama-server gives a draft as many as its target, and the target as many as it was trained for."""
    weights: Counter[str] = Counter()
    for kind, nbytes in tensors:
        weights[kind] += nbytes
    context = draft.context_length if context is None else context
    return Memory(dict(weights.most_common()), context, _cache_bytes(draft, context))


def _cache_bytes(draft: Draft, context: int) -> int:
    """Keys and values are as wide as each other in every draft."""
    positions = _padded(context)
    windowed = min(positions, _padded((draft.sliding_window or 0) + BATCH))
    narrow = 0
    if draft.sliding_window is not None:
        narrow = draft.n_layer if draft.deepseek4 else sum(draft.sliding_window_pattern[: draft.n_layer])
    held = narrow * windowed + (draft.n_layer - narrow) * positions
    return held * 2 * draft.n_head_kv * draft.head_dim * CACHED_BYTES


def _padded(positions: int) -> int:
    return -(-positions // PAD) * PAD
