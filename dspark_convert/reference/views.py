"""What the slots of a block look at, layer by layer, and how configs say it.

A window of W hides what lies W or more positions before a query. So z-lab's ``dflash/model.py``, SpecForge, NVIDIA's
Model Optimizer and vLLM count it. transformers' masks for Muse Glimmer's assistant are at odds among each other by
one; with the cache that it keeps, a query sees W - 1 positions and itself, as everywhere. What a short window hides
of the slots behind a query is not hidden by vLLM and llama.cpp, and not here. speculators alone
(``models/dflash/attention.py``) counts from the block: every slot sees the W positions before the anchor.

Without a flag a windowed layer is causal in the block and a full one is not (z-lab, SpecForge, vLLM); ``use_swa``
alone, as in MiMo's drafts, makes no layer causal, and Muse's are defined both ways.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dspark_convert.reference.config import Config

MUSE = "MuseGlimmerAssistantModel"
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class View:
    """``window``: how many positions a query looks back, itself counted; None for all. ``causal``: in the block."""

    window: int | None = None
    causal: bool = False


def visible(n_past: int, slots: int, view: View, *, from_block: bool = False) -> torch.Tensor:
    """[slots, n_past + slots]: which target positions and slots a slot looks at.

    ``from_block``: the window reaches back from the anchor, not from each slot, and hides no slot.
    """
    positions = torch.arange(n_past + slots)
    queries = positions[n_past:, None]
    sees = torch.ones(slots, n_past + slots, dtype=torch.bool)
    if view.window is not None:
        sees &= positions >= n_past - view.window if from_block else queries - positions < view.window
    if view.causal:
        sees &= positions <= queries
    return sees


def read_views(config: Config, n_layer: int) -> tuple[View, ...]:
    kinds = config.get("layer_types")
    if kinds is None:
        if config.flag("use_sliding_window"):
            raise config.wrong("layer_types", "there if use_sliding_window is true", None)
        kinds = [FULL] * n_layer
    if not isinstance(kinds, list) or len(kinds) < n_layer or any(kind not in (FULL, SLIDING) for kind in kinds):
        raise config.wrong("layer_types", f"{FULL} or {SLIDING} for each of {n_layer} layers", kinds)
    sliding = [kind == SLIDING for kind in kinds[:n_layer]]
    everywhere = config.flag("dflash_config.use_swa") is True
    if config.flag("use_sliding_window") is False and not everywhere:  # transformers then sets no window
        sliding = [False] * n_layer
    window = None
    if any(sliding) or everywhere:
        own = "dflash_config.swa_window_size"
        window = config.integer("sliding_window" if config.get(own) is None else own)
    causal = causal_layers(config, sliding)
    return tuple(
        View(window if everywhere or slides else None, own) for slides, own in zip(sliding, causal, strict=True)
    )


def causal_layers(config: Config, sliding: list[bool]) -> list[bool]:
    """For each layer, whether its slots look at the slots before them only."""
    flag = config.flag("is_causal", "dflash_config.is_causal", "dflash_config.causal", "dflash_query_causal")
    if flag is not None:
        return [flag] * len(sliding)
    if config.architecture() == MUSE or config.flag("sliding_window_non_causal"):
        return [False] * len(sliding)
    return sliding
