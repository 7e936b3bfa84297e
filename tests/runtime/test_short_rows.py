"""One wrong row of a Q8_0 table that is shorter than the others: the whole hardly shows it."""

from __future__ import annotations

from pathlib import Path

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.reference.facts import read_facts
from dspark_convert.reference.weights import read_tensors
from dspark_convert.runtime.values import compare_values
from tests.mutations.copies import read
from tests.runtime.pairs import make_random_pair

ROW = 100


def test_short_row_of_q8_0(tmp_path: Path) -> None:
    pair = make_random_pair(tmp_path, markov_rank=32)
    facts, tensors = read_facts(pair.draft_dir), read_tensors(pair.draft_dir)
    table = tensors["markov_head.markov_w1.weight"].clone()
    table[ROW] *= 0.02
    tensors["markov_head.markov_w1.weight"] = table
    draft = read(pair.draft)
    for factor, expected in {
        1.0: [],
        0.0: ["row 100 of markov_w1.weight is 1 of its size away from that of markov_head.markov_w1.weight"],
    }.items():
        rows = table.numpy().copy()
        rows[ROW] *= factor
        draft.tensors["markov_w1.weight"] = rows
        path = draft.write(tmp_path / f"{factor}.gguf", "Q8_0")
        with open_gguf(path) as ours, open_gguf(pair.target) as theirs:
            assert compare_values(ours, theirs, tensors, facts).problems == expected
