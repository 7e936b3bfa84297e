"""A vocabulary in SentencePiece's manner, from whichever file, and what is done to a text before it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dspark_convert.tokenizer.vocabulary import TokenType

#: SentencePiece's sign for a space
SPACE = "\u2581"
#: how a vocabulary spells a byte that no piece covers
BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class PieceModel(StrEnum):
    """How a text is cut into pieces; the values are those of ``tokenizer.ggml.model``."""

    BPE = "llama"
    UNIGRAM = "t5"


@dataclass(frozen=True)
class Preparation:
    """What is done to a text first.

    ``charsmap``: SentencePiece's compiled table of replacements, empty if there is none.
    ``others``: steps that GGUF has no words for, as the file names them.
    """

    space_prefix: bool
    merge_spaces: bool
    charsmap: bytes = b""
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pieces:
    """``ids`` has no holes below its highest id but for added tokens; ``types`` and ``scores`` stand by id.

    ``roles``: ids that the file itself gives to roles such as ``bos``; ``merges``: those of a BPE, if the file
    has them.
    """

    model: PieceModel
    ids: dict[str, int]
    scores: Sequence[float]
    types: Sequence[TokenType]
    preparation: Preparation
    roles: Mapping[str, int] = field(default_factory=dict)
    merges: Sequence[str] = ()
