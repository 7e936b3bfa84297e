"""Decode greedily, plainly and with the draft. Child process only.

One round with the draft: draft a block after the last token, verify it in one batch of the target,
accept the longest prefix that the target would have chosen itself and the target's own next token,
hand the accepted rows' features to the draft, and forget the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dspark_convert.runtime.context import FloatArray
from dspark_convert.runtime.session import Block, Session


@dataclass(frozen=True)
class PlainRun:
    """Greedy decoding of the target alone.

    ``tokens`` [n]; ``logits`` [n, vocabulary], float32: row i chose tokens[i].
    """

    tokens: list[int]
    logits: FloatArray

    def gap(self, index: int) -> float:
        """How far the chosen token's logit at ``index`` is above the next best one's."""
        second, first = np.partition(self.logits[index], -2)[-2:]
        return float(first - second)


@dataclass(frozen=True)
class Round:
    """One round: ``anchor`` stands at ``position``; ``wanted`` [drafts + 1] are the target's choices.

    ``accepted`` counts the drafts taken. ``block`` (the biased logits and confidences) and
    ``features`` [accepted + 1, taps × n_embd], float32, are there if the round was recorded.
    """

    position: int
    anchor: int
    drafts: list[int]
    wanted: list[int]
    accepted: int
    block: Block | None = None
    features: FloatArray | None = None


@dataclass
class DraftRun:
    """Greedy decoding with the draft: ``tokens`` after the prompt, and the rounds that made them.

    ``watched``: pieces [tokens, watched layers, n_embd] of the target's layer inputs, of the prompt and of
    all recorded rounds.
    """

    tokens: list[int]
    rounds: list[Round] = field(default_factory=list)
    watched: list[FloatArray] = field(default_factory=list)


def decode_plain(session: Session, prompt: Sequence[int], max_tokens: int) -> PlainRun:
    """Decode at most ``max_tokens`` tokens one by one; stops behind an end-of-text token."""
    session.clear()
    session.keep_features(False)
    logits = prefill(session, prompt)
    tokens: list[int] = []
    chosen = []
    while True:
        tokens.append(int(logits[-1].argmax()))
        chosen.append(logits[-1])
        if len(tokens) == max_tokens or session.ends_text(tokens[-1]):
            return PlainRun(tokens, np.stack(chosen))
        logits = session.decode_target([tokens[-1]], len(prompt) + len(tokens) - 1)


def measure_noise(session: Session, prompt: Sequence[int], plain: PlainRun) -> float:
    """How much the target's logits differ when the same tokens come in batches as large as a block.

    A batch adds floats in another order than single steps do. The largest difference over all tokens
    of ``plain`` and the whole vocabulary, in the logits' own unit.
    """
    session.clear()
    session.keep_features(False)
    prefill(session, prompt)
    step = session.shape.drafts_per_block + 1
    worst = 0.0
    for start in range(0, len(plain.tokens) - 1, step):
        piece = plain.tokens[start : start + step]
        logits = session.decode_target(piece, len(prompt) + start)
        expected = plain.logits[start + 1 : start + 1 + len(piece)]
        worst = max(worst, float(np.abs(logits[: len(expected)] - expected).max()))
    return worst


def decode_with_draft(session: Session, prompt: Sequence[int], n_tokens: int, *, record: int = 0) -> DraftRun:
    """Decode ``n_tokens`` tokens, or a few more: rounds are whole.

    Of the first ``record`` rounds it keeps what a comparison with a reference needs.
    """
    session.clear()
    session.keep_features(True)
    watched: list[FloatArray] = []
    logits = prefill(session, prompt, inject=True, watched=watched if record else None)
    run = DraftRun([int(logits[-1].argmax())], watched=watched)
    while len(run.tokens) < n_tokens:
        position = len(prompt) + len(run.tokens) - 1
        anchor = run.tokens[-1]
        recorded = len(run.rounds) < record
        block = session.draft_block(anchor, position, watch=recorded)
        wanted = session.decode_target([anchor, *block.tokens], position).argmax(axis=1).tolist()
        accepted = count_accepted(block.tokens, wanted)
        kept = session.features(len(wanted))[: accepted + 1]
        seen = (block, kept) if recorded else (None, None)
        if seen[0] is not None and session.watched:
            watched.append(session.watched_inputs(len(wanted))[: accepted + 1])
        session.forget_target(position + accepted + 1)
        session.inject(kept, position)
        run.tokens += wanted[: accepted + 1]
        run.rounds.append(Round(position, anchor, block.tokens, wanted, accepted, *seen))
    return run


def count_accepted(drafts: Sequence[int], wanted: Sequence[int]) -> int:
    """The length of the longest prefix of ``drafts`` that equals the target's choices."""
    for index, (draft, choice) in enumerate(zip(drafts, wanted, strict=False)):
        if draft != choice:
            return index
    return len(drafts)


def prefill(
    session: Session, prompt: Sequence[int], inject: bool = False, watched: list[FloatArray] | None = None
) -> FloatArray:
    """Decode ``prompt`` from position 0: the last token's logits [1, vocabulary].

    With ``inject`` the features of all tokens are handed to the draft. The watched layer inputs are added to
    ``watched``.
    """
    logits = np.empty((0, 0), np.float32)
    for start in range(0, len(prompt), session.target.n_batch):
        piece = prompt[start : start + session.target.n_batch]
        logits = session.decode_target(piece, start, last_only=True)
        if inject:
            session.inject(session.features(len(piece)), start)
        if watched is not None and session.watched:
            watched.append(session.watched_inputs(len(piece)))
    return logits
