"""Compare what llama.cpp computed with what the reference computes, block position by block position.

The reference gets the target's features from the layers that the checkpoint names and sees the block as
the checkpoint describes it; only the tokens and the experts are llama.cpp's, so that one early flip does not cascade.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_convert.errors import InputError
from dspark_convert.runtime.choices import Choices, add_up, fit_experts
from dspark_convert.runtime.recording import Recording
from dspark_convert.runtime.selected import Selected, compare_selected, fit_candidates, worst_selected

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dspark_convert.reference.draft import Block, Reference
    from dspark_convert.reference.target import TargetReference


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

    ``middle``: half of the blocks differ by no more, over their own deviation. ``choices`` of experts that the
    reference took from llama.cpp, ``selected`` of a selector; None without.
    """

    blocks: int
    positions: tuple[Position, ...]
    confidence_max_abs: float | None
    middle: float = 0.0
    choices: Choices | None = None
    selected: Selected | None = None

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
    """What the blocks of one reference's comparison add up to."""

    def __init__(self, proposals: int) -> None:
        self.tallies = [_Tally() for _ in range(proposals)]
        self.furthest: list[float] = []
        self.behind: list[NDArray[Any]] = []
        self.selected: list[Selected] = []
        self.confidence: float | None = None

    def add(self, block: Block, recording: Recording, index: int, first: int) -> None:
        self.furthest.append(furthest(block, recording.logits[index], first))
        for tally, ours, theirs in zip(self.tallies, recording.logits[index], block.logits[first:], strict=False):
            tally.add(ours.astype(theirs.dtype), theirs)
        if block.confidence is not None and recording.confidences.size:
            apart = _apart(recording.confidences[index], block.confidence[first:])
            self.confidence = max(self.confidence or 0.0, apart)
        if (selected := compare_selected(block, recording, index)) is not None:
            self.selected.append(selected)

    def comparison(self) -> Comparison:
        positions = tuple(tally.position(i) for i, tally in enumerate(self.tallies) if tally.blocks)
        middle = float(np.median(self.furthest)) if self.furthest else 0.0
        worst = worst_selected(self.selected)
        return Comparison(len(self.furthest), positions, self.confidence, middle, add_up(self.behind), worst)


def compare_blocks(recordings: Iterable[Recording], references: Sequence[Reference]) -> list[Comparison]:
    """Every recorded block against every reference; only positions that both sides draft are compared.

    All references are of one checkpoint; the first one takes llama.cpp's experts (``choices``).
    Raises ValueError if a block does not fit it.
    """
    facts = references[0].facts
    sums = [_Figures(facts.slots - facts.first_slot) for _ in references]
    for recording in recordings:
        for index, position in enumerate(recording.positions.tolist()):
            features = recording.features(facts.taps, position)
            chosen = fit_slots(recording.slots[index].tolist(), facts.slots, facts.mask_token_id)
            anchor, experts = int(recording.anchors[index]), fit_experts(recording, index, facts)
            candidates = fit_candidates(recording, index, facts)
            for number, (found, reference) in enumerate(zip(sums, references, strict=True)):
                block = reference.block(features, anchor, chosen, None if number else experts, candidates)
                found.add(block, recording, index, facts.first_slot)
                if not number and experts is not None and block.behind is not None:
                    found.behind.append(block.behind[:, : len(recording.slots[index])])
    return [found.comparison() for found in sums]


def furthest(block: Block, got: NDArray[Any], first: int) -> float:
    """The largest difference of a logit over the deviation of its slot's; NaN and infinities count as far apart.

    ``got`` [drafts, vocabulary] are the logits of the slots from ``first`` on.
    """
    want = block.logits[first : first + len(got)]
    ours = got[: len(want)].astype(want.dtype)
    finite = np.isfinite(want)  # a reduced vocabulary leaves -inf on the others
    apart = np.where(finite, np.abs(ours - np.where(finite, want, 0.0)), np.where(ours == want, 0.0, np.inf))
    deviation = np.maximum(want.std(1, where=finite), 1e-30)
    return float((np.nan_to_num(apart, nan=1e9, posinf=1e9).max(1) / deviation).max(initial=0.0))


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
