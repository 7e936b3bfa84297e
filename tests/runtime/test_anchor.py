"""A library that ignores sample_from_anchor is told by what it computes.

The one installed reads the key, so the files stand for the other kind: a library that ignores the key runs a
bonus-anchor draft as this one runs an anchor-first draft.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.guard import Outcome, run_job
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.shape import DraftShape
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, make_random_pair

BONUS = DraftShape(7, reads_anchor=False, mask_token_id=507, causal=False, has_confidence_head=True)


def run(pair: PairFiles, draft: Path, shape: DraftShape = BONUS) -> Outcome:
    job = {
        "library": str(find_library().path),
        "target": str(pair.target),
        "draft": str(draft),
        "shape": asdict(shape),
        "prompts": ["the small boat"],
        "max_tokens": 2,
    }
    return run_job(job, timeout=60)


def bonus(want: Expected) -> None:
    want.kv["dflash.sample_from_anchor"] = ("BOOL", False)


@pytest.mark.parametrize("size", [{}, {"block_size": 3, "draft_layers": 1}, {"vocab_size": 544}])
def test_library_that_ignores_the_flag(tmp_path: Path, size: dict[str, Any]) -> None:
    pair = make_random_pair(tmp_path, **size)
    shape = DraftShape(size.get("block_size", 7), False, 507, causal=False, has_confidence_head=True)
    with pytest.raises(
        EnvironmentFault, match=r"xllamacpp\S* does not read dflash\.sample_from_anchor, which is false"
    ):
        run(pair, pair.draft, shape)
    assert run(pair, pair.broken("bonus", bonus), shape).fault == ""


def test_perfect_pair(bigram_pair: PairFiles) -> None:
    """The bias is all that this draft has: its other logits are 1e-4 of it."""
    with pytest.raises(EnvironmentFault, match="does not read"):
        run(bigram_pair, bigram_pair.draft)
    assert run(bigram_pair, bigram_pair.broken("bonus", bonus)).fault == ""


def test_head_without_a_bias_tells_nothing(random_pair: PairFiles) -> None:
    def change(want: Expected) -> None:
        kind, shape, data = want.tensors["markov_w2.weight"]
        want.tensors["markov_w2.weight"] = (kind, shape, np.zeros(len(data), np.uint8).tobytes())

    assert run(random_pair, random_pair.broken("no-bias", change)).fault == ""
