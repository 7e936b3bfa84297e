"""What reading a tokenizer gives, from a directory or from a GGUF."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_convert.findings import Finding
from dspark_convert.ggufio.types import KV


@dataclass(frozen=True)
class TokenizerKVs:
    """The target's ``tokenizer.*`` entries, in the order in which they are written.

    The mask token is not among them: it belongs to the draft.
    """

    kvs: tuple[KV, ...]
    findings: tuple[Finding, ...]
