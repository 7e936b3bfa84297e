"""What deviates where -> the likely cause, in words. Pure functions; the patterns are those of experiments.

The files themselves tell most: taps, metadata and tensors are compared one by one. Where they are right and the
numbers are not, the pattern over the block's positions is left: position 0 stands on the anchor's token, unless the
draft is read from the first mask on, and sees no Markov chain; deeper positions stand on mask tokens; the confidence
reads the same states and decides nothing. docs/validation.md has the table of experiments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: as far apart as the logits of two networks that have nothing to do with each other, in deviations
UNRELATED = 0.7
#: below this a deviation is one of precision, not of meaning
PRECISION = 5e-3
#: one position is off by clearly more than another
MARKED = 4.0
#: a wrong mask token shows less where the anchor's token stands
BY_MASK = 0.7


@dataclass(frozen=True)
class Evidence:
    """``relative`` [positions] and ``confidence`` of the parity with their tolerances; the taps of both sides.

    ``drafts`` and ``proposals`` are the tokens a block of the file and of the checkpoint; ``stated`` and
    ``values`` tell whether the checks metadata and values passed; ``target_relative`` is how far llama.cpp's
    layer inputs are from the PyTorch target's at the worst tap, None if that was not asked for. ``from_anchor``:
    position 0 is the anchor's slot; ``markov``: there is a Markov head.
    """

    relative: Sequence[float] = ()
    tolerance: float = 1e-4
    confidence: float | None = None
    confidence_tolerance: float = 2e-5
    file_taps: Sequence[int] = ()
    taps: Sequence[int] = ()
    drafts: int = 7
    proposals: int = 7
    stated: bool = True
    values: bool = True
    target_relative: float | None = None
    target_tolerance: float = 1e-4
    from_anchor: bool = True
    markov: bool = True


def find_suspects(evidence: Evidence) -> list[str]:
    """Likely causes, the most telling first; empty if nothing deviates."""
    causes = []
    if list(evidence.file_taps) != list(evidence.taps):
        causes.append(describe_taps(evidence.file_taps, evidence.taps))
    if evidence.target_relative is not None and evidence.target_relative > evidence.target_tolerance:
        causes.append(
            "llama.cpp's layer inputs are not the PyTorch target's: another target, or a heavier quantisation of it"
        )
    if not evidence.values:
        causes.append("tensors differ from the checkpoint's; the check values names them")
    if not evidence.stated:
        causes.append("metadata differs from the checkpoint's; the check metadata names the keys")
    if any(value > evidence.tolerance for value in evidence.relative):
        if not causes:
            pattern = describe_positions(evidence)
            causes.append(
                f"{pattern}; the file's tensors, metadata and taps are the checkpoint's, so the library computes"
                " something else with them"
            )
    elif evidence.confidence is not None and evidence.confidence > evidence.confidence_tolerance:
        causes.append(
            "all logits agree and only the confidence differs: its bias, its weight, or the order of its features"
            " (hidden state first, then the Markov row)"
        )
    return causes


def describe_taps(ours: Sequence[int], theirs: Sequence[int]) -> str:
    """How the file's taps differ from the checkpoint's."""
    pair = f"the file taps the inputs of layers {list(ours)}, the checkpoint those of {list(theirs)}"
    if len(ours) != len(theirs):
        return f"{pair}: not even their number is the same"
    shifts = {a - b for a, b in zip(ours, theirs, strict=True)}
    if shifts == {-1}:
        return f"{pair}: target_layers is one too low (ids of layer outputs written as layer inputs)"
    if shifts == {1}:
        return f"{pair}: target_layers is one too high (shifted twice)"
    if sorted(ours) == sorted(theirs):
        return f"{pair}: the same layers in another order, but fc expects its own"
    different = [index for index, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    return f"{pair}: they differ at tap {different[0]}"


def describe_positions(evidence: Evidence) -> str:
    """What the pattern over the block's positions points at."""
    relative, tolerance = evidence.relative, evidence.tolerance
    first, deeper = relative[0], relative[1:]
    if evidence.drafts != evidence.proposals:
        return (
            f"the file drafts {evidence.drafts} tokens a block and the checkpoint {evidence.proposals}: the block size,"
            " or the anchor rule (sample_from_anchor)"
        )
    if first <= tolerance:
        start = next(index for index, value in enumerate(relative) if value > tolerance)
        chain = "the Markov chain behind the anchor (markov_w1, markov_w2)"
        seen = "what slots see of each other (the causal flag, the window)"
        return f"position 0 agrees and those from {start} on do not: {chain if evidence.markov else seen}"
    if deeper and max(deeper) <= tolerance:
        slot = "anchor's" if evidence.from_anchor else "first mask's"
        return f"only position 0 differs: how the {slot} slot is read{' or biased' if evidence.markov else ''}"
    if max(relative) < PRECISION:
        return (
            "all positions differ a little: the RMS epsilon, or a rounded key/value cache or flash attention in"
            " the library"
        )
    if deeper and first > MARKED * deeper[-1]:
        return (
            "the difference falls from position 0 to the last: what slots see of those behind them (the causal flag),"
            f" or only the {'anchor' if evidence.from_anchor else 'first mask'}'s slot is wrong"
        )
    if min(relative) <= UNRELATED:
        return (
            "all positions differ by a part of the logits' deviation: the block size, the causal flag, or a tensor"
            " of small effect"
        )
    if deeper and evidence.from_anchor and first < BY_MASK * min(deeper):
        return "position 0, which stands on the anchor and not on a mask, differs least: the mask token"
    return (
        "all positions differ as unrelated logits do: q and k in the other RoPE layout, the RoPE base, the taps, the"
        f" {'Markov head' if evidence.markov else 'mask token'}, or the embedding or head"
    )
