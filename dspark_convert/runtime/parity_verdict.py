"""Judge a comparison with the reference: the checks "features", "parity" and "confidence". Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from dspark_convert.document import plain
from dspark_convert.runtime.choices import Choices
from dspark_convert.runtime.noise import Tolerance
from dspark_convert.runtime.parity import Comparison, Feature
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.selected import tell_selected
from dspark_convert.runtime.suspects import Evidence, describe_taps, find_suspects

if TYPE_CHECKING:
    from dspark_convert.reference.facts import Facts


@dataclass
class Parity:
    """``held``: llama.cpp against the checkpoint as the file's types hold it, which is what is judged;
    ``unrounded``: against the checkpoint itself, where that differs: what the file's types cost.

    ``tokens`` had their features compared; ``offered`` are the layer inputs that the target hands out;
    ``drafts`` is the file's number of proposals a block; ``proven`` tells whether the checks "metadata" and
    "values" passed. ``notes`` are what a reader has to know of the comparison.
    """

    facts: Facts
    tolerance: Tolerance
    target_tolerance: float
    tokens: int
    features: Sequence[Feature]
    offered: Collection[int]
    drafts: int
    proven: tuple[bool, bool]
    held: Comparison | None = None
    unrounded: Comparison | None = None
    suspects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The ``parity`` object of ``dspark-validate/1``; figures that are not finite are null."""
        held = self.held or Comparison(0, (), None)
        document = {
            "type": self.tolerance.type_name,
            "tolerance": self.tolerance.logits,
            "blocks": held.blocks,
            **held.to_json(),
            "middle": held.middle,
            "choices": asdict(held.choices) if held.choices else None,
            "choices_tolerance": self.tolerance.margin,
            "selector": asdict(held.selected) if held.selected else None,
            "confidence_tolerance": self.tolerance.confidence,
            "features": [asdict(feature) for feature in self.features],
            "unrounded": self.unrounded.to_json() if self.unrounded else None,
            "suspects": list(self.suspects),
            "notes": list(self.notes),
        }
        result: dict[str, Any] = plain(document)
        return result


def judge_parity(parity: Parity, impossible: str = "") -> list[Check]:
    """The three checks; ``impossible`` says why there was nothing to compare. Sets ``parity.suspects``."""
    parity.suspects = find_suspects(_evidence(parity))
    features = _judge_features(parity)
    if parity.held is None:
        skipped = Check("confidence", "skip", "nothing was compared")
        return [features, Check("parity", "fail", f"nothing was compared: {impossible}"), skipped]
    return [features, _judge_logits(parity, parity.held), _judge_confidence(parity, parity.held)]


def _evidence(parity: Parity) -> Evidence:
    held = parity.held or Comparison(0, (), None)
    stated, values = parity.proven
    return Evidence(
        relative=[position.relative for position in held.positions],
        tolerance=parity.tolerance.logits,
        confidence=held.confidence_max_abs,
        confidence_tolerance=parity.tolerance.confidence,
        file_taps=_taps(parity, "file_tap"),
        taps=_taps(parity, "reference_tap"),
        drafts=parity.drafts,
        proposals=parity.facts.slots - parity.facts.first_slot,
        stated=stated,
        values=values,
        target_relative=_worst_target(parity),
        target_tolerance=parity.target_tolerance,
        from_anchor=parity.facts.sample_from_anchor,
        markov=parity.facts.markov_rank > 0,
    )


def _taps(parity: Parity, side: str) -> list[int]:
    return [tap for feature in parity.features if (tap := getattr(feature, side)) is not None]


def _worst_target(parity: Parity) -> float | None:
    return max((f.target_relative for f in parity.features if f.target_relative is not None), default=None)


def _judge_features(parity: Parity) -> Check:
    ours, theirs = _taps(parity, "file_tap"), _taps(parity, "reference_tap")
    if beyond := [tap for tap in theirs if tap not in parity.offered]:
        text = f"the checkpoint taps the input of layer {beyond[0]}, but the target offers 0 to {max(parity.offered)}"
        return Check("features", "fail", text)
    if ours != theirs:
        apart = [f"tap {i} is {f.relative:.2g} deviations off" for i, f in enumerate(parity.features) if f.relative]
        return Check("features", "fail", "; ".join([describe_taps(ours, theirs), *apart]))
    text = f"the inputs of layers {theirs} for {parity.tokens} tokens"
    worst = _worst_target(parity)
    if worst is None:
        text += ", as the checkpoint taps them"
        if parity.facts.stages is not None:
            text += "; their values are llama.cpp's own: there is no PyTorch model of a DeepSeek-V4 target"
        return Check("features", "pass", text)
    if worst > parity.target_tolerance:
        text += f" are up to {worst:.2g} of their size away from the PyTorch target's"
        return Check("features", "fail", f"{text} ({parity.target_tolerance:.2g} is allowed)")
    return Check("features", "pass", f"{text} are the PyTorch target's to within {worst:.2g} of their size")


def _judge_logits(parity: Parity, held: Comparison) -> Check:
    tolerance, proposals = parity.tolerance, parity.facts.slots - parity.facts.first_slot
    if not held.positions:
        return Check("parity", "fail", "no block was drafted, so nothing was compared; give other prompts")
    worst = max(position.relative for position in held.positions)
    agree = worst <= tolerance.logits and held.middle <= tolerance.middle
    found = "are the checkpoint's to within" if agree else "differ from the checkpoint's by up to"
    text = (
        f"{held.blocks} blocks {found} {worst:.2g} of the logits' deviation"
        f" ({tolerance.logits:.2g} is allowed for {tolerance.type_name})"
    )
    if parity.facts.stages is not None or tolerance.middle < inf or tolerance.type_name == "NVFP4":
        text += f", half of them to within {held.middle:.2g}"
    if tolerance.middle < inf:
        text += f" ({tolerance.middle:.2g} is allowed)"
    if parity.unrounded:
        cost = max(position.relative for position in parity.unrounded.positions)
        text += f", {cost:.2g} from what it is without the file's rounding"
    if held.choices:
        text += f"; {_tell_choices(held.choices, tolerance.margin)}"
    selected = held.selected
    if selected:
        text += f"; {tell_selected(selected, tolerance.logits)}"
        agree = agree and max(selected.relative, selected.furthest) <= tolerance.logits
    if not agree or not _near(held.choices, tolerance.margin):
        return Check("parity", "fail", "; ".join([text, *parity.suspects[:1]]))
    if parity.drafts != proposals:
        text += f"; but the file drafts {parity.drafts} tokens a block, the checkpoint {proposals}"
        return Check("parity", "fail", text)
    return Check("parity", "pass", text)


def _near(choices: Choices | None, margin: float) -> bool:
    """Whether rounding explains each choice that is another."""
    return choices is None or choices.furthest <= margin


def _tell_choices(choices: Choices, margin: float) -> str:
    text = f"of {choices.made} choices of experts {choices.others or 'none'} {'is' if choices.others == 1 else 'are'}"
    if not choices.others:
        return f"{text} another than the checkpoint's"
    apart = f"{choices.furthest:.2g} of the scores' deviation"
    if _near(choices, margin):
        return f"{text} the other one of two as good as equal, up to {apart} apart ({margin:.2g} is allowed)"
    return f"{text} not the checkpoint's, up to {apart} worse ({margin:.2g} is allowed): the router or its bias"


def _judge_confidence(parity: Parity, held: Comparison) -> Check:
    apart, allowed = held.confidence_max_abs, parity.tolerance.confidence
    if apart is None:
        if parity.facts.has_confidence_head:
            return Check("confidence", "fail", "the checkpoint has a confidence head, but the file gives no confidence")
        return Check("confidence", "pass", "the checkpoint has no confidence head")
    text = f"differs from the checkpoint's by at most {apart:.2g} ({allowed:.2g} is allowed)"
    if apart <= allowed:
        return Check("confidence", "pass", text)
    logits_agree = all(position.relative <= parity.tolerance.logits for position in held.positions)
    return Check("confidence", "fail", "; ".join([text, *(parity.suspects[-1:] if logits_agree else ())]))
