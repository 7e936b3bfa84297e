"""Which way does this library want the target's features? Child process only.

Newer builds take them in one ``llama_decode`` of an embedding batch as wide as all taps together.
Older ones (b10335) want ``llama_encode`` of that batch and then ``llama_decode`` of its result, and give
garbage without an error if the wide batch is decoded. The two are told apart by what the draft's output
depends on.
"""

from __future__ import annotations

import numpy as np

from dspark_convert.errors import InputError
from dspark_convert.runtime.context import FloatArray
from dspark_convert.runtime.session import Session


def probe_injection(session: Session) -> str:
    """Find the protocol, set it on ``session`` and return it: "decode" or "encode+decode".

    Raises InputError if the draft's output does not depend on the features at all.
    """
    session.injection = "decode"
    generator = np.random.default_rng(0)
    # One token: with more, a library that reads rows of n_embd would reach into the next one's floats.
    features = generator.standard_normal((1, len(session.taps) * session.n_embd)).astype(np.float32)
    plain = _output(session, features)
    other = _output(session, -features)
    if np.array_equal(plain, other):
        raise InputError(
            "the draft's output does not depend on the target's features, so it cannot draft; look for tensors of"
            " zeros or NaN in it."
        )
    if not _reads_everything(session, features, plain, other):
        session.injection = "encode+decode"
    return session.injection


def _reads_everything(session: Session, features: FloatArray, plain: FloatArray, other: FloatArray) -> bool:
    """Whether a plain decode takes the floats beyond the first n_embd into account."""
    if len(session.taps) > 1:
        changed = features.copy()
        changed[:, session.n_embd :] *= -1
        return not np.array_equal(plain, _output(session, changed))
    # One tap: the encoder ends in a norm, so its result does not depend on the features' length,
    # whereas a library that takes the features for the encoder's result passes the length on.
    longer = _output(session, 4 * features)
    return _distance(plain, longer) < 0.01 * _distance(plain, other)


def _output(session: Session, features: FloatArray) -> FloatArray:
    session.draft.clear()
    session.inject(features, 0)
    logits = session.draft_block(session.shape.mask_token_id, 1).logits
    session.draft.clear()
    return logits


def _distance(first: FloatArray, second: FloatArray) -> float:
    # A reduced vocabulary leaves -inf on the tokens that the draft cannot propose.
    finite = np.isfinite(first) & np.isfinite(second)
    return float(np.abs(first[finite] - second[finite]).max(initial=0.0))
