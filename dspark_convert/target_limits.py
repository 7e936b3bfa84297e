"""What llama.cpp cannot run of a target although it loads it: sizes that no published model has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dspark_convert.findings import Finding, error

#: the Hadamard matrices that turn an indexer's keys come in multiples of it
HADAMARD = 64
#: the compression whose layers have an indexer
INDEXED = 4


def judge_limits(architecture: str, metadata: Mapping[str, Any]) -> Iterator[Finding]:
    """Sizes over which llama.cpp dies (SIGFPE, SIGABRT) in the first batch of a DeepSeek-V4."""
    if architecture != "deepseek4":
        return

    def value(name: str) -> object:
        return metadata.get(f"deepseek4.{name}")

    width, heads = value("attention.indexer.key_length"), value("attention.key_length")
    ratios = value("attention.compress_ratios")
    if isinstance(ratios, Sequence) and not isinstance(ratios, str) and INDEXED not in ratios:
        message = f"no layer of the target is compressed {INDEXED}:1, without which llama.cpp divides by zero."
        yield error("target-compression", "attention.compress_ratios", message)
    if not isinstance(width, int) or not width:
        return
    if width == heads:
        message = f"the target's indexer has keys of {width} like its heads, with which llama.cpp divides by zero."
        yield error("target-indexer", "attention.indexer.key_length", message)
    elif width % HADAMARD:
        message = f"the target's indexer has keys of {width}; llama.cpp aborts on what is no multiple of {HADAMARD}."
        yield error("target-indexer", "attention.indexer.key_length", message)
