"""Tensors that no checkpoint holds and that follow from a draft's sizes, as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

#: a pair's frequency divided by this stands still (``rope_freqs.weight``, as in llama.cpp's Gemma converters)
STILL = 1e30


def proportional_rope(v: Mapping[str, Any]) -> bytes:
    """F32 [head_dim / 2]: 1 for the pairs that turn, ``STILL`` for the others."""
    turning = v["rope_rotated"] // 2
    still = v["head_dim"] // 2 - turning
    return struct.pack(f"<{turning + still}f", *[1.0] * turning, *[STILL] * still)


HOW: dict[str, Callable[[Mapping[str, Any]], bytes]] = {"proportional_rope": proportional_rope}
