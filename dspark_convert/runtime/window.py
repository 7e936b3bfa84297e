"""What llama.cpp does otherwise than DeepSeek-V4's definition: where a slot's window ends.

By definition all slots of a block look at the same last target positions, as many as the window has. llama.cpp counts
the window back from each slot, so that slot k looks at k + 1 fewer. The comparison counts as llama.cpp does, because no
file can change it; this says so, and measures what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dspark_convert.runtime.parity import fit_slots, furthest
from dspark_convert.runtime.recording import Recording

if TYPE_CHECKING:
    from dspark_convert.reference.draft import Reference

#: blocks in which the difference is measured
MEASURED = 4


def window_note(
    recordings: Sequence[Recording], window: int, reference: Reference, load: Callable[[], Reference]
) -> str:
    """One sentence or two; ``load`` makes the reference that counts by definition, if there is use for it."""
    facts = reference.facts
    told = (
        f"llama.cpp counts the window of {window} positions back from each slot, DeepSeek's definition from the block,"
        " so that slot k sees k + 1 target positions fewer; the comparison counts as llama.cpp does"
    )
    places = [(r, i) for r in recordings for i, at in enumerate(r.positions.tolist()) if at + facts.slots > window]
    if not places:
        return f"{told}, and no block here reaches beyond the window, where both are the same"
    by_definition, costs = load(), []
    for recording, index in places[:: -(-len(places) // MEASURED)]:
        position, anchor = int(recording.positions[index]), int(recording.anchors[index])
        features = recording.features(facts.taps, position)
        chosen = fit_slots(recording.slots[index].tolist(), facts.slots, facts.mask_token_id)
        own = reference.block(features, anchor, chosen)
        costs.append(furthest(own, by_definition.block(features, anchor, chosen).logits, 0))
    reach = "1 block reaches" if len(places) == 1 else f"{len(places)} blocks reach"
    low, high = f"{min(costs):.2g}", f"{max(costs):.2g}"
    return (
        f"{told}: {reach} beyond the window, and in {len(costs)} of them that moves the logits by"
        f" {low if low == high else f'{low} to {high}'} of their deviation"
    )
