"""Compare what llama.cpp computed with what the reference computes, block position by block position.

The reference gets the target's features from the layers that the checkpoint names and sees the block as
the checkpoint describes it; only the tokens are llama.cpp's, so that one early flip does not cascade.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_convert.errors import InputError
from dspark_convert.runtime.choices import Compute, follow_choices, furthest
from dspark_convert.runtime.noise import Tolerance
from dspark_convert.runtime.recording import Recording

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dspark_convert.reference.draft import Block, Reference
    from dspark_convert.reference.target import TargetReference

#: blocks that no choice of experts explains, before the search for one is given up
MAX_UNEXPLAINED = 3
#: the share of blocks that may have tipped over in more than what is followed: two choices of one token, say
MAX_TIPPED = 1 / 8


@dataclass(frozen=True)
class Position:
    """One draft position, 0 the first proposal, over all blocks.

    ``max_abs`` is the largest difference of a logit, ``relative`` the same over the standard deviation of
    the reference's logits there; ``argmax_agree`` the share of blocks in which both prefer the same token.
    """

    position: int
    max_abs: float
    relative: float
    argmax_agree: float


@dataclass(frozen=True)
class Feature:
    """One tap: the layer inputs that the file's tap and the checkpoint's gave for the same tokens.

    ``relative`` is the largest difference over the deviation of the checkpoint's tap; None where the target
    does not offer one of them, or one has fewer taps. ``target_relative`` compares llama.cpp's layer input with
    the PyTorch target's: root mean square of the difference over that of the input, because the target
    itself may be quantised, which moves single numbers far.
    """

    file_tap: int | None
    reference_tap: int | None
    relative: float | None
    target_relative: float | None = None


@dataclass(frozen=True)
class Comparison:
    """``blocks`` compared; ``confidence_max_abs`` is None if one side has no confidence.

    ``middle``: half of the blocks differ by no more, over their own deviation. In ``followed`` blocks llama.cpp
    took another expert of two that were at most ``margin`` apart (``choices``). ``tipped`` blocks, too few to judge by,
    are further away than the tolerance, and experts are as near in them: the other figures leave them out.
    """

    blocks: int
    positions: tuple[Position, ...]
    confidence_max_abs: float | None
    middle: float = 0.0
    followed: int = 0
    margin: float = 0.0
    tipped: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "positions": [asdict(position) for position in self.positions],
            "confidence_max_abs": self.confidence_max_abs,
        }


class _Tally:
    """Running figures of one draft position."""

    def __init__(self) -> None:
        self.max_abs = self.sum = self.squares = 0.0
        self.count = self.blocks = self.agree = 0

    def add(self, got: NDArray[Any], want: NDArray[Any]) -> None:
        finite = np.isfinite(want)
        apart = np.abs(got[finite] - want[finite])
        same = np.array_equal(got[~finite], want[~finite])
        self.max_abs = max(self.max_abs, float(apart.max(initial=0.0)) if same else float("inf"))
        self.sum += float(want[finite].sum())
        self.squares += float((want[finite] ** 2).sum())
        self.count += int(finite.sum())
        self.blocks += 1
        self.agree += int(got.argmax() == want.argmax())

    def position(self, number: int) -> Position:
        mean = self.sum / max(self.count, 1)
        deviation = max(self.squares / max(self.count, 1) - mean**2, 0.0) ** 0.5
        relative = self.max_abs / deviation if deviation else float("inf") if self.max_abs else 0.0
        return Position(number, self.max_abs, relative, self.agree / max(self.blocks, 1))


class _Figures:
    """What a set of blocks adds up to."""

    def __init__(self, proposals: int) -> None:
        self.tallies = [_Tally() for _ in range(proposals)]
        self.confidence: float | None = None

    def add(self, block: Block, recording: Recording, index: int, first: int) -> None:
        for tally, ours, theirs in zip(self.tallies, recording.logits[index], block.logits[first:], strict=False):
            tally.add(ours.astype(theirs.dtype), theirs)
        if block.confidence is not None and recording.confidences.size:
            apart = _apart(recording.confidences[index], block.confidence[first:])
            self.confidence = max(self.confidence or 0.0, apart)


class _Sum:
    """Everything that one reference's comparison adds up: all blocks, and those that did not tip over."""

    def __init__(self, proposals: int) -> None:
        self.all, self.steady = _Figures(proposals), _Figures(proposals)
        self.furthest: list[float] = []
        self.tipped = self.followed = self.unexplained = 0
        self.margin = 0.0

    @property
    def lost(self) -> bool:
        """Too many blocks cannot be explained for a search in more of them."""
        return self.unexplained > MAX_UNEXPLAINED + MAX_TIPPED * len(self.furthest)

    def comparison(self) -> Comparison:
        few = self.tipped <= MAX_TIPPED * len(self.furthest)
        judged = self.steady if few else self.all
        positions = tuple(tally.position(i) for i, tally in enumerate(judged.tallies) if tally.blocks)
        middle = float(np.median(self.furthest)) if self.furthest else 0.0
        tipped = self.tipped if few else 0
        blocks = len(self.furthest)
        return Comparison(blocks, positions, judged.confidence, middle, self.followed, self.margin, tipped)


def compare_blocks(
    recordings: Iterable[Recording], references: Sequence[Reference], tolerance: Tolerance
) -> list[Comparison]:
    """Every recorded block against every reference; only positions that both sides draft are compared.

    All references are of one checkpoint; the first one follows llama.cpp's choices of experts within ``tolerance``.
    Raises ValueError if a block does not fit it.
    """
    facts = references[0].facts
    sums = [_Sum(facts.slots - facts.first_slot) for _ in references]
    for recording in recordings:
        for index, position in enumerate(recording.positions.tolist()):
            features = recording.features(facts.taps, position)
            chosen = fit_slots(recording.slots[index].tolist(), facts.slots, facts.mask_token_id)
            anchor, got = int(recording.anchors[index]), recording.logits[index]
            for number, (found, reference) in enumerate(zip(sums, references, strict=True)):
                compute = partial(reference.block, features, anchor, chosen)
                block = compute(()) if number else _follow(found, compute, got, tolerance, facts.first_slot)
                _add(found, block, recording, index, facts.first_slot, tolerance)
    return [found.comparison() for found in sums]


def _follow(found: _Sum, compute: Compute, got: NDArray[Any], tolerance: Tolerance, first: int) -> Block:
    """The block with the choices that explain it; where too many cannot be explained, none is tried any more."""
    if found.lost:
        return compute(())
    followed = follow_choices(compute, got, first, tolerance)
    found.followed += followed.swaps > 0
    found.margin = max(found.margin, followed.margin)
    found.unexplained += furthest(followed.block, got, first) > tolerance.logits
    return followed.block


def _add(found: _Sum, block: Block, recording: Recording, index: int, first: int, tolerance: Tolerance) -> None:
    far = furthest(block, recording.logits[index], first)
    found.furthest.append(far)
    found.all.add(block, recording, index, first)
    near = block.margins is not None and bool((block.margins < tolerance.margin).any())
    if far > tolerance.logits and near:
        found.tipped += 1
    else:
        found.steady.add(block, recording, index, first)


def compare_features(
    recordings: Sequence[Recording], file_taps: Sequence[int], taps: Sequence[int], target: TargetReference | None
) -> list[Feature]:
    """Tap by tap; ``target`` is the PyTorch target that llama.cpp's layer inputs are compared with, or None.

    Raises InputError if that target cannot read the recorded tokens.
    """
    try:
        streams = [target.run(recording.tokens.tolist())[0] for recording in recordings] if target else None
    except ValueError as fault:
        message = f"the checkpoint of --target-reference is not that of the target that ran: {fault}"
        raise InputError(message) from fault
    features = []
    for index in range(max(len(file_taps), len(taps))):
        ours = file_taps[index] if index < len(file_taps) else None
        theirs = taps[index] if index < len(taps) else None
        want = _inputs(recordings, theirs)
        target_relative = None
        if streams is not None and want is not None and theirs is not None and theirs < len(streams[0]):
            target_relative = _distance(want, np.concatenate([stream[theirs] for stream in streams]))
        features.append(Feature(ours, theirs, _relative(_inputs(recordings, ours), want), target_relative))
    return features


def _inputs(recordings: Sequence[Recording], layer: int | None) -> NDArray[Any] | None:
    """The layer's inputs for all tokens of all prompts, [tokens, n_embd]; None if it was not recorded."""
    if layer is None or layer not in recordings[0].layers:
        return None
    return np.concatenate([recording.features((layer,), len(recording.tokens)) for recording in recordings])


def _relative(got: NDArray[Any] | None, want: NDArray[Any] | None) -> float | None:
    if got is None or want is None:
        return None
    if got.shape != want.shape:
        return float("inf")
    apart, deviation = float(np.abs(got - want).max(initial=0.0)), float(want.std())
    return apart / deviation if deviation else float("inf") if apart else 0.0


def _distance(got: NDArray[Any], want: NDArray[Any]) -> float:
    if got.shape != want.shape:
        return float("inf")
    return float(np.linalg.norm(got - want) / max(float(np.linalg.norm(want)), 1e-30))


def _apart(got: NDArray[Any], want: NDArray[Any]) -> float:
    count = min(len(got), len(want))
    apart = np.abs(got[:count] - want[:count]).max(initial=0.0)
    return float(apart) if np.isfinite(apart) else float("inf")


def fit_slots(chosen: list[int], slots: int, filler: int) -> list[int]:
    """``chosen`` cut or filled to ``slots``; a filled slot lies behind every one that is compared."""
    return [*chosen[:slots], *[filler] * (slots - len(chosen))]
