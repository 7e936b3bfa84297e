"""Decode greedily, plainly and with the draft, and time every step. Child process only.

Times are wall time in ms and cover what a server does too: the decoding, the choice of the best token, and the
draft's memory. The prompt's own processing is not timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from time import perf_counter
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.runtime.decode import count_accepted, prefill
from dspark_convert.runtime.session import Session


def time_plain(session: Session, prompt: Sequence[int], max_tokens: int) -> dict[str, Any]:
    """At most ``max_tokens`` tokens one by one: ``tokens``, and ``steps_ms`` of all but the first."""
    session.clear()
    session.keep_features(False)
    tokens = [int(prefill(session, prompt)[-1].argmax())]
    steps = []
    while len(tokens) < max_tokens and not session.ends_text(tokens[-1]):
        start = perf_counter()
        logits = session.decode_target([tokens[-1]], len(prompt) + len(tokens) - 1)
        tokens.append(int(logits[-1].argmax()))
        steps.append(1e3 * (perf_counter() - start))
    return {"tokens": tokens, "steps_ms": steps}


def time_drafted(session: Session, prompt: Sequence[int], n_tokens: int, p_min: float) -> dict[str, Any]:
    """``n_tokens`` tokens or a few more: ``tokens`` and ``rounds``.

    A block is verified up to the first proposal whose confidence is below ``p_min``, as llama.cpp does.
    ``confidences`` are those of all proposals of the block, or None without a confidence head.
    """
    session.clear()
    session.keep_features(True)
    tokens = [int(prefill(session, prompt, inject=True)[-1].argmax())]
    rounds: list[dict[str, Any]] = []
    while len(tokens) < n_tokens:
        position = len(prompt) + len(tokens) - 1
        start = perf_counter()
        block = session.draft_block(tokens[-1], position)
        confidences = None if block.confidences is None else block.confidences.tolist()
        if confidences and not all(map(isfinite, confidences)):
            raise InputError("the draft's confidences are not finite; look for NaN or infinities in conf_proj.")
        drafts = block.tokens[: confident(confidences, p_min)]
        drafted = perf_counter()
        wanted = session.decode_target([tokens[-1], *drafts], position).argmax(axis=1).tolist()
        accepted = count_accepted(drafts, wanted)
        session.forget_target(position + accepted + 1)
        verified = perf_counter()
        session.inject(session.features(len(wanted))[: accepted + 1], position)
        injected = perf_counter()
        tokens += wanted[: accepted + 1]
        rounds.append(
            {
                "drafts": drafts,
                "accepted": accepted,
                "confidences": confidences,
                "draft_ms": 1e3 * (drafted - start),
                "verify_ms": 1e3 * (verified - drafted),
                "inject_ms": 1e3 * (injected - verified),
            }
        )
    return {"tokens": tokens[:n_tokens], "rounds": rounds}


def confident(confidences: Sequence[float] | None, p_min: float) -> int | None:
    """How many proposals come before the first with a confidence below ``p_min``; None for all."""
    if confidences is None or p_min <= 0:
        return None
    return next((index for index, value in enumerate(confidences) if value < p_min), None)
