"""What llama.cpp computes otherwise than a draft's definition, where no key of a file can mend it.

The comparison computes as llama.cpp does, for that is what a file can be held to; this says what is otherwise, and
measures on the run what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dspark_convert.runtime.parity import fit_slots, furthest
from dspark_convert.runtime.recording import Recording

if TYPE_CHECKING:
    from dspark_convert.reference.draft import Reference
    from dspark_convert.reference.facts import Facts

#: blocks in which the difference is measured
MEASURED = 4


@dataclass(frozen=True)
class Departure:
    """``told``: a sentence without its full stop. ``definition``: ``Reference.load``'s options that follow it here.

    ``window``: only blocks that reach beyond so many positions are touched; 0 for all.
    """

    told: str
    definition: Mapping[str, Any] = field(default_factory=dict)
    window: int = 0


def as_llama_computes(facts: Facts, causal_in_file: bool) -> dict[str, Any]:
    """Options of ``Reference.load``; ``causal_in_file``: the one flag that a file has for all layers."""
    mixed = len({view.causal for view in facts.views}) > 1
    return {
        "float32_angles": True,
        "window_by_distance": True,
        "causal": causal_in_file if mixed else None,
        "plain_logits": facts.dflash2 is None,
        "table_gelu": True,
        "usual_ramp": True,
    }


def departures(facts: Facts, causal_in_file: bool) -> Iterator[Departure]:
    windows = {view.window for view in facts.views if view.window is not None}
    window = facts.stages.window if facts.stages else min(windows, default=0) if facts.window_from_block else 0
    if window:
        told = (
            f"llama.cpp counts the window of {window} positions back from each slot, the draft's definition from the"
            " block, so that slot k sees k + 1 target positions fewer; the comparison counts as llama.cpp does"
        )
        yield Departure(told, {"window_by_distance": False}, window)
    sided = sum(view.causal for view in facts.views)
    if 0 < sided < len(facts.views):
        run = "in all of them" if causal_in_file else "in none"
        told = (
            f"in {sided} of {len(facts.views)} layers a slot sees only the slots before it; llama.cpp has one answer"
            f" for all layers, here {run}, and so has the comparison"
        )
        yield Departure(told, {"causal": None})
    yarn = None if facts.rotation is None else facts.rotation.yarn
    if yarn is not None and yarn != yarn.usual:
        unrounded = "" if yarn.truncate else " without rounding"
        told = (
            f"the draft's YaRN leaves pairs of {yarn.beta_fast:g} turns as they are and slows those of"
            f" {yarn.beta_slow:g}{unrounded}; llama.cpp takes {yarn.usual.beta_fast:g} and {yarn.usual.beta_slow:g},"
            " and whole pairs, for every draft, and so has the comparison"
        )
        yield Departure(told, {"usual_ramp": False})
    if facts.dflash2 is None and (facts.logit_cap is not None or facts.logit_scale != 1):
        what = [f"multiplies the logits by {facts.logit_scale:.4g}"] if facts.logit_scale != 1 else []
        what += [f"holds them within {facts.logit_cap:.4g}"] if facts.logit_cap is not None else []
        weight = "before it adds the Markov bias" if facts.markov_rank else "which leaves their order as it is"
        told = (
            f"the draft's definition {' and '.join(what)}{' ' if facts.markov_rank else ', '}{weight}; llama.cpp does"
            " not, and neither does the comparison"
        )
        yield Departure(told, {"plain_logits": False})


def describe_departure(
    departure: Departure, recordings: Sequence[Recording], own: Reference, load: Callable[..., Reference]
) -> str:
    """One sentence or two; ``load`` makes the reference with ``departure.definition``, if there is use for it."""
    facts, window = own.facts, departure.window
    places = [(r, i) for r in recordings for i, at in enumerate(r.positions.tolist()) if at + facts.slots > window]
    if not places:
        return f"{departure.told}, and no block here reaches beyond the window, where both are the same"
    by_definition, costs = load(**departure.definition), []
    for recording, index in places[:: -(-len(places) // MEASURED)]:
        position, anchor = int(recording.positions[index]), int(recording.anchors[index])
        features = recording.features(facts.taps, position)
        chosen = fit_slots(recording.slots[index].tolist(), facts.slots, facts.mask_token_id)
        block = own.block(features, anchor, chosen)
        costs.append(furthest(block, by_definition.block(features, anchor, chosen).logits, 0))
    low, high = f"{min(costs):.2g}", f"{max(costs):.2g}"
    moved = f"that moves the logits by {low if low == high else f'{low} to {high}'} of their deviation"
    if not window:
        return f"{departure.told}: in {len(costs)} blocks {moved}"
    reach = "1 block reaches" if len(places) == 1 else f"{len(places)} blocks reach"
    return f"{departure.told}: {reach} beyond the window, and in {len(costs)} of them {moved}"
