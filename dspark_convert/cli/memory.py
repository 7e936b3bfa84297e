"""The memory that a draft takes, in words."""

from __future__ import annotations

from dspark_convert.cli.text import human_bytes
from dspark_convert.memory import Memory


def memory_line(memory: Memory) -> str:
    """What a draft takes beside its target, in one line."""
    weights = human_bytes(sum(memory.weights.values()))
    cache = f"{human_bytes(memory.cache)} of F16 cache at {memory.context:,} positions"
    return f"{human_bytes(memory.total)}: {weights} of weights, {cache}"
