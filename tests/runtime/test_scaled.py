"""A matrix of few bits that is a little too large: it lies as near as rounding, and parity takes the file's values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.reference.facts import read_facts
from dspark_convert.reference.weights import read_tensors
from dspark_convert.runtime.values import compare_values
from tests.mutations.copies import read
from tests.runtime.pairs import make_random_pair


@pytest.mark.parametrize(("kind", "factor"), [("Q4_0", 1.2), ("Q4_0", 0.85), ("Q5_0", 1.1), ("Q5_0", 0.95)])
def test_matrix_of_few_bits_is_scaled(tmp_path: Path, kind: str, factor: float) -> None:
    pair = make_random_pair(tmp_path, markov_rank=32)
    facts, tensors, draft = read_facts(pair.draft_dir), read_tensors(pair.draft_dir), read(pair.draft)

    def problems() -> list[str]:
        with open_gguf(draft.write(tmp_path / "d.gguf", kind)) as ours, open_gguf(pair.target) as theirs:
            return compare_values(ours, theirs, tensors, facts).problems

    assert problems() == []
    name = "blk.1.ffn_down.weight"
    draft.tensors[name] = draft.tensors[name] * np.float32(factor)
    (problem,) = problems()
    assert problem.startswith(f"{name} is layers.1.mlp.down_proj.weight times {factor:.2g}"[:-1])
    assert problem.endswith(f"which rounding to {kind} is not")
