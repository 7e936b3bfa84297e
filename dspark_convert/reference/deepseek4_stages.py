"""A DeepSeek-V4 draft as a whole: its weights, and its stages one behind the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from dspark_convert.reference.deepseek4 import Stage, mixer, visible
from dspark_convert.reference.deepseek4_facts import StageFacts, stage_shapes
from dspark_convert.reference.deepseek4_weights import Quantised, read_stage_tensors, replace_values, values_shapes
from dspark_convert.reference.facts import Facts
from dspark_convert.reference.qwen3 import Sizes, rms_norm
from dspark_convert.reference.spellings import CONFIDENCE, MARKOV_W1
from dspark_convert.reference.states import States
from dspark_convert.reference.weights import EMBED, HEAD, MARKOV_W2, Array, Shape, as_tensor, compare_shapes


class Stages:
    """``by_distance``: see ``deepseek4.visible``."""

    def __init__(
        self, facts: Facts, stage_facts: StageFacts, weights: Quantised, sizes: Sizes, by_distance: bool
    ) -> None:
        self._facts, self._weights, self._by_distance = facts, weights, by_distance
        self._stages = [Stage(weights, i, sizes, stage_facts) for i in range(facts.n_layer)]
        self._collapse = mixer(weights, "hc_head", sizes.eps, stage_facts)

    def __call__(self, past: torch.Tensor, anchor: int, experts: torch.Tensor | None = None) -> States:
        facts, weights, own = self._facts, self._weights, self._stages[0].facts
        context = rms_norm(weights.linear(past, "main_proj.weight"), weights["main_norm.weight"], facts.rms_norm_eps)
        here = len(past) + torch.arange(facts.slots)
        sees = visible(len(past), facts.slots, own.window, by_distance=self._by_distance)
        streams = weights.rows(EMBED, facts.block_ids(anchor)).unsqueeze(1).repeat(1, own.copies, 1)
        behind = []
        for index, stage in enumerate(self._stages):
            streams, lag = stage(streams, here, context, sees, None if experts is None else experts[index])
            behind.append(lag)
        collapsed = self._collapse.read(streams)
        final = rms_norm(collapsed, weights["norm.weight"], facts.rms_norm_eps)
        return States(final, collapsed, torch.stack(behind))


def load_tensors(
    directory: Path, facts: Facts, own: StageFacts, tables: Mapping[str, Array], replacements: Mapping[str, Array]
) -> dict[str, torch.Tensor]:
    """The draft's tensors in ``directory`` with ``tables`` and ``replacements`` (published names) in their place."""
    tensors = read_stage_tensors(directory)
    replace_values(tensors, replacements, values_shapes(directory, tensors, own.tile))
    tensors |= {name: as_tensor(table) for name, table in tables.items()}
    compare_shapes(directory, values_shapes(directory, tensors, own.tile), expected_stage_shapes(facts, own))
    return tensors


def expected_stage_shapes(facts: Facts, own: StageFacts) -> dict[str, Shape]:
    """The tensors that the draft has to have, by plain name, and the shapes of their values."""
    hidden, vocab, rank = facts.hidden_size, facts.vocab_size, facts.markov_rank
    shapes: dict[str, Shape] = {
        EMBED: (vocab, hidden),
        HEAD: (vocab, hidden),
        "main_proj.weight": (hidden, len(facts.taps) * hidden),
        "main_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "hc_head_fn": (own.copies, own.copies * hidden),
        "hc_head_base": (own.copies,),
        "hc_head_scale": (1,),
        MARKOV_W1: (vocab, rank),
        MARKOV_W2: (vocab, rank),
    }
    for i in range(facts.n_layer):
        shapes |= stage_shapes(i, hidden, facts.n_head, facts.head_dim, facts.intermediate_size, own)
    if facts.has_confidence_head:
        shapes[CONFIDENCE] = (1, hidden + (rank if facts.confidence_with_markov else 0))
    return shapes
