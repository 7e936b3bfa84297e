"""What the decoding loop has to know of a draft, read from its metadata before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DraftShape:
    """``reads_anchor``: slot 0 of a block, where the anchor stands, proposes the next token.

    That takes a Markov head and ``sample_from_anchor``: other drafts are read from slot 1 on. ``kind`` is
    "dspark" with a Markov head, "dflash" without.
    """

    block_size: int
    reads_anchor: bool
    mask_token_id: int
    causal: bool
    has_confidence_head: bool
    kind: str = "dspark"

    @property
    def drafts_per_block(self) -> int:
        """Tokens proposed a round."""
        return self.block_size if self.reads_anchor else self.block_size - 1
