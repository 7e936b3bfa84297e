"""What deviates where -> the likely cause, in words. Pure functions; the figures behind them are measured.

Position 0 sees everything that the backbone computes, but the Markov head only through the anchor; deeper positions
add the chain. The confidence reads the same states and decides nothing. So where a deviation begins,
and how large it is, tells what is wrong (docs/validation.md has the table of experiments).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

#: as far apart as logits of two networks that have nothing to do with each other, in deviations
UNRELATED = 0.7
#: below this a deviation is one of precision, not of meaning
PRECISION = 5e-3
#: a position is clearly further off than another
MARKED = 4.0


@dataclass(frozen=True)
class Evidence:
    """``relative`` [positions] and ``confidence`` of the parity with their tolerances; the taps of both sides.

    ``stated`` and ``values`` tell whether those checks passed; ``target_relative`` is how far llama.cpp's own
    layer inputs are from the PyTorch target's at the worst tap, None if that was not asked for.
    """

    relative: Sequence[float] = ()
    tolerance: float = 1e-4
    confidence: float | None = None
    confidence_tolerance: float = 2e-5
    file_taps: Sequence[int] = ()
    taps: Sequence[int] = ()
    drafts: int = 0
    proposals: int = 0
    stated: bool = True
    values: bool = True
    target_relative: float | None = None
    target_tolerance: float = field(default=1e-4)


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
    wrong = [value > evidence.tolerance for value in evidence.relative]
    if any(wrong):
        causes.append(describe_positions(evidence.relative, evidence.tolerance))
        if not causes[:-1]:
            causes.append(
                "the file's tensors, metadata and taps are the checkpoint's, so the library computes something else"
                " with them, or the file is read in another way than it was written"
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


def describe_positions(relative: Sequence[float], tolerance: float) -> str:
    """What the pattern over the block's positions points at."""
    first, deeper = relative[0], list(relative[1:])
    worst = max(relative)
    if first <= tolerance:
        start = next(index for index, value in enumerate(relative) if value > tolerance)
        return (
            f"position 0 agrees and those from {start} on do not: the Markov chain (markov_w1, markov_w2) behind the"
            " anchor, or attention among the block's slots"
        )
    if deeper and max(deeper) <= tolerance:
        return "only position 0 differs: how the anchor's slot is read or biased"
    if deeper and first > MARKED * max(deeper):
        return (
            "position 0 differs far more than the deeper ones: the anchor rule (sample_from_anchor), so that every"
            " proposal is read one slot off"
        )
    if worst < PRECISION:
        return (
            "all positions differ a little: the RMS epsilon, or a rounded key/value cache or flash attention in"
            " the library"
        )
    if min(relative) > UNRELATED:
        return (
            "all positions differ by as much as unrelated logits do: q and k in the other RoPE layout, a wrong"
            " RoPE base or mask token, wrong taps, or a wrong embedding or head"
        )
    return (
        "all positions differ by a part of the logits' deviation: the block size, the causal flag, the Markov head,"
        " or single tensors of the backbone"
    )
