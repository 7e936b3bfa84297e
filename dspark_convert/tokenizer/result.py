"""What reading a tokenizer gives, from a directory or from a GGUF."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_convert.findings import Finding
from dspark_convert.ggufio.types import KV


@dataclass(frozen=True)
class TokenizerKVs:
    """The target's ``tokenizer.*`` entries, in the order in which they are written.

    The mask token is not among them: it belongs to the draft. ``tokens_total`` counts all ids,
    ``padding`` those of them that stand for no token; ``pre`` is ``tokenizer.ggml.pre`` ("" if
    a GGUF has none) and ``pre_evidence`` says in words where that name comes from.
    """

    kvs: tuple[KV, ...]
    findings: tuple[Finding, ...]
    tokens_total: int
    padding: int
    pre: str
    pre_evidence: str
