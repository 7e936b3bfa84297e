"""Judge what a run of a pair did: proposals, acceptance, losslessness. Pure functions.

``runs`` is what the worker returns, one mapping a prompt: ``plain`` and ``drafted`` (tokens without and
with the draft), ``gaps`` (between the two best logits at each token of ``plain``), ``noise``, and
``rounds`` of ``drafts``, ``wanted`` (one more than drafts) and the count ``accepted``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dspark_convert.runtime.report import Acceptance, Check

#: matches at position 0 have to exceed the number that chance gives by this many standard deviations
CHANCE_DEVIATIONS = 2.0
#: the least share accepted at position 0; published drafts reach 0.4 to 0.9, and broken ones 0.08 or less
SHARE_FLOOR = 0.1


def count_acceptance(runs: Sequence[Mapping[str, Any]], drafts_per_block: int) -> Acceptance:
    """Proposals and accepted ones per position; what lies behind the end of a text is not counted."""
    drafted, accepted, reached = ([0] * drafts_per_block for _ in range(3))
    rounds = 0
    for run in runs:
        left = len(run["plain"]) - 1  # the first token comes from the prompt
        for entry in run["rounds"]:
            rounds += 1
            for position in range(min(len(entry["drafts"]), left)):
                drafted[position] += 1
                accepted[position] += position < entry["accepted"]
                reached[position] += position <= entry["accepted"]
            left -= entry["accepted"] + 1
    return Acceptance(tuple(drafted), tuple(accepted), rounds, tuple(reached))


def judge_drafting(acceptance: Acceptance) -> Check:
    """A draft that proposes nothing makes no mistake: that must not pass."""
    total = sum(acceptance.drafted)
    if total == 0:
        detail = "the draft proposed no token: the target's answers end at once; give other prompts or more tokens"
        return Check("drafting", "fail", detail)
    return Check("drafting", "pass", f"{total} tokens proposed in {acceptance.rounds} rounds")


def judge_acceptance(acceptance: Acceptance, runs: Sequence[Mapping[str, Any]], *, parity_holds: bool = False) -> Check:
    """Whether position 0 is accepted more often than a draft that knows nothing would be.

    Chance is the share of matches that shuffling the same proposals among the same rounds gives:
    the sum over tokens of (share among proposals × share among wanted tokens), as in Cohen's kappa.
    Beyond that, ``SHARE_FLOOR`` has to be reached. Where parity with the checkpoint holds, a draft that fails
    here is right and useless with this target: that stays a failure, with other advice.
    """
    pairs = [(e["drafts"][0], e["wanted"][0]) for run in runs for e in run["rounds"] if e["drafts"]]
    if not pairs:
        return Check("acceptance", "skip", "nothing was proposed")
    count, matches = len(pairs), sum(draft == wanted for draft, wanted in pairs)
    drafts, wanted = (Counter(side) for side in zip(*pairs, strict=True))
    chance = sum(drafts[token] * wanted[token] for token in drafts) / count**2
    by_chance = count * chance + CHANCE_DEVIATIONS * math.sqrt(count * chance * (1 - chance))
    text = f"{matches} of {count} first proposals accepted, {chance * count:.1f} by chance alone"
    if matches == count or (matches > by_chance and matches >= SHARE_FLOOR * count):
        return Check("acceptance", "pass", f"{text}; mean accepted length {acceptance.mean_accepted_length:.2f}")
    advice = (
        "a draft that fits its target has about half of them accepted or more; check that it was trained for this"
        " target, and its taps, mask token, RoPE and heads"
    )
    if parity_holds:
        advice = (
            "the file computes what its checkpoint does (see parity), so the conversion is right, but the checkpoint"
            " knows nothing of this target: it was trained for another one, or not at all"
        )
    return Check("acceptance", "fail", f"{text}: {advice}")


def judge_lossless(runs: Sequence[Mapping[str, Any]]) -> Check:
    """Whether the text with the draft equals the text without.

    A batch adds floats in another order than single steps, so the two may part where the two best
    logits are closer than the noise that was measured on the target; anywhere else is a fault.
    """
    noise = max((run["noise"] for run in runs), default=0.0)
    ties = []
    for number, run in enumerate(runs, 1):
        plain, drafted = run["plain"], run["drafted"]
        at = next((i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b), None)
        if at is None and len(plain) == len(drafted):
            continue
        at = min(len(plain), len(drafted)) if at is None else at
        gap = run["gaps"][at]
        if gap >= noise:
            detail = (
                f"prompt {number} parts from plain decoding at token {at}, where the two best logits are"
                f" {gap:.3g} apart and the target's noise is {noise:.3g}"
            )
            return Check("lossless", "fail", detail)
        ties.append(f"prompt {number} parts at token {at} on a near-tie ({gap:.3g} apart)")
    same = f"{len(runs) - len(ties)} of {len(runs)} texts equal plain decoding"
    tail = f"; {'; '.join(ties)}, below the target's noise of {noise:.3g}" if ties else ""
    return Check("lossless", "pass", f"{same}{tail}")
