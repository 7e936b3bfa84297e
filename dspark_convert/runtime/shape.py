"""What the decoding loop has to know of a draft, read from its metadata before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

#: contexts are made in steps of this, so that llama.cpp need not round
CONTEXT_STEP = 256


@dataclass(frozen=True)
class DraftShape:
    """``reads_anchor``: slot 0 of a block, where the anchor stands, proposes the next token.

    That takes a Markov head and ``sample_from_anchor``: other drafts are read from slot 1 on. ``kind`` is
    "dspark" with a Markov head, "dflash2" with a candidate selector, "dflash" without either. ``selector_top_k``:
    candidates that the selector scores, 0 without one. ``position_axes``: numbers that say a position, 4 with
    M-RoPE. ``stages``: DeepSeek-V4's, not Qwen3's layers.
    """

    block_size: int
    reads_anchor: bool
    mask_token_id: int
    causal: bool
    has_confidence_head: bool
    kind: str = "dspark"
    stages: bool = False
    selector_top_k: int = 0
    position_axes: int = 1

    @property
    def drafts_per_block(self) -> int:
        """Tokens proposed a round."""
        return self.block_size if self.reads_anchor else self.block_size - 1

    def positions_for(self, n_tokens: int) -> int:
        """Positions that a text of ``n_tokens`` takes with the blocks that are tried behind it."""
        return n_tokens + 2 * self.block_size + 2


def context_size(n_positions: int) -> int:
    """The size of a context that holds ``n_positions``."""
    return -(-n_positions // CONTEXT_STEP) * CONTEXT_STEP
