"""Does this library read ``dflash.sample_from_anchor``? Child process only.

b10335 and earlier do not (b10566 does): they run every draft with a Markov head anchor-first, so a bonus-anchor
draft gets each slot's Markov bias from the wrong token. It drafts badly and no message says why.

How it shows: in a block of one token t, repeated, on an empty cache, every slot attends to copies of the
same values. Its logits before the bias are then those of all others, whatever the positions, and what
differs between two slots is the bias alone. Read as it should be, slot 0 has none, slot 1 that of t and slot
2 that of slot 1's best token u, so

    slot 2 - slot 0 in the block of t  ==  slot 1 - slot 0 in the block of u.

Anchor-first, slot 0 has the bias of t, and the two sides have nothing to do with each other.
"""

from __future__ import annotations

import numpy as np

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.binding import NEWER_BUILD
from dspark_convert.runtime.context import FloatArray
from dspark_convert.runtime.session import Session

#: the slots that tell
SLOTS = 3
#: tokens t that are tried: one for which u = t says nothing
TRIES = 4
#: how far the two sides may lie apart, as a share of their lengths; seen: 1e-6, or 0.8 to 0.9
APART = 0.3
#: a bias smaller than this share of the logits is lost in the noise, and its order makes no difference
WEAK = 1e-2


def check_anchor_rule(session: Session) -> None:
    """Raise EnvironmentFault if the library runs this bonus-anchor draft anchor-first.

    Says nothing of anchor-first drafts, which every library runs as such, nor of blocks of two slots. Nor of
    DeepSeek-V4 stages, whose values rotate, so that no two slots are alike: libraries that know them read the key.
    """
    shape = session.shape
    if shape.kind != "dspark" or shape.stages or shape.reads_anchor or shape.block_size < SLOTS:
        return
    apart = sides = base = 0.0
    for token in range(1, session.draft.n_vocab, -(-session.draft.n_vocab // TRIES)):
        block = _block_of(session, token)
        other = _block_of(session, int(block[1].argmax()))
        known = np.isfinite(block[0])  # a reduced vocabulary leaves -inf on the others
        left, right = (block[2] - block[0])[known], (other[1] - other[0])[known]
        apart += float(np.linalg.norm(left - right))
        sides += float(np.linalg.norm(left) + np.linalg.norm(right))
        base += float(np.linalg.norm(block[0][known]))
    if apart > APART * sides and apart > WEAK * base:
        raise EnvironmentFault(
            f"the llama.cpp library {session.llama.path} does not read dflash.sample_from_anchor, which is false in"
            f" the draft: it takes it for anchor-first, drafts badly and says nothing; {NEWER_BUILD}."
        )


def _block_of(session: Session, token: int) -> FloatArray:
    """The logits [3, vocabulary] of a block of ``token``, before any features."""
    session.draft.clear()
    logits = session.draft.decode_tokens([token] * SLOTS, 0, [True] * SLOTS)
    session.draft.clear()
    return logits
