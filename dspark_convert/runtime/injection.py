"""Which way does this library want the target's features? Child process only.

Newer builds take them in one ``llama_decode`` of an embedding batch as wide as all taps together.
Older ones (b10335) want ``llama_encode`` of that batch and then ``llama_decode`` of its result, and give
garbage without an error if the wide batch is decoded. The two are told apart by what the draft's output
depends on.
"""

from __future__ import annotations

import numpy as np

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.context import FloatArray
from dspark_convert.runtime.session import Session


def probe_injection(session: Session) -> str:
    """Find the protocol, set it on ``session`` and return it: "decode" or "encode+decode".

    Raises EnvironmentFault if the draft's output does not depend on the features either way.
    """
    for protocol in ("decode", "encode+decode"):
        session.injection = protocol
        if _reads_all_features(session):
            return protocol
    raise EnvironmentFault(
        f"The llama.cpp library {session.llama.path} does not pass the target's features to the draft, neither"
        " by decoding nor by encoding them; name another build with --lib."
    )


def _reads_all_features(session: Session) -> bool:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((1, len(session.taps) * session.n_embd)).astype(np.float32)
    first = _output(session, features)
    changed = features.copy()
    if len(session.taps) > 1:
        # A library that reads only one row of n_embd does not see a change behind it.
        changed[:, session.n_embd :] *= -1
        return not np.array_equal(first, _output(session, changed))
    # One tap: the encoder ends in a norm, so its result does not depend on the features' length,
    # whereas a library that takes the features for the encoder's result passes the length on.
    longer = _output(session, 4 * features)
    other = _output(session, -changed)
    return _distance(first, longer) < 0.01 * _distance(first, other)


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
