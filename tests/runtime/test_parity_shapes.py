"""Random drafts of many shapes, converted to F32: llama.cpp and the reference agree at every position."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark_convert.ggufio.reader import open_gguf
from tests.runtime.parity_case import Shape, make, prove

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPES = {
    "one block position": Shape(block_size=1),
    "two block positions": Shape(block_size=2, taps=(2,), markov_rank=64),
    "block of 16": Shape(block_size=16, head_dim=16, heads=8, kv_heads=8),
    "block of 16, one tap, no confidence": Shape(block_size=16, taps=(1,), confidence="none", markov_rank=256),
    "three heads over one": Shape(heads=3, kv_heads=1, head_dim=32, hidden_size=96),
    "three heads of their own": Shape(heads=3, kv_heads=3, head_dim=64, hidden_size=96, block_size=4, tie=True),
    "five heads over one": Shape(heads=5, kv_heads=1, head_dim=16, hidden_size=160, block_size=5),
    "five heads of their own": Shape(heads=5, kv_heads=5, head_dim=80, hidden_size=160, confidence="hidden_only"),
    "eight heads over one": Shape(heads=8, kv_heads=1, head_dim=64, hidden_size=64, block_size=3, markov_rank=128),
    "eight heads over two of 80": Shape(
        heads=8, kv_heads=2, head_dim=80, hidden_size=64, block_size=9, tables="include"
    ),
    "six heads over two": Shape(
        heads=6, kv_heads=2, head_dim=16, taps=(0, 3), rope_theta=1e6, tie=True, tables="include"
    ),
    "one head": Shape(heads=1, kv_heads=1, head_dim=64, hidden_size=32, intermediate_size=32, block_size=6),
    "one layer, one tap": Shape(draft_layers=1, taps=(3,), block_size=8, markov_rank=32, tables="include"),
    "five layers, six taps": Shape(draft_layers=5, taps=(-1, 0, 1, 2, 3, 4), block_size=4),
    "the embeddings tapped": Shape(taps=(-1, 2), confidence="hidden_only", rope_theta=1e7),
    "only the embeddings tapped": Shape(taps=(-1,), confidence="none", head_dim=80),
    "taps out of order": Shape(taps=(3, 0, 2), heads=4, kv_heads=1, block_size=5),
    "hidden-only confidence of a wide rank": Shape(confidence="hidden_only", markov_rank=256, block_size=10),
    "no confidence, tied": Shape(confidence="none", tie=True, block_size=12, head_dim=64, kv_heads=4),
    "rank 0": Shape(markov_rank=0, block_size=7, taps=(1, 2)),
    "rank 0, tied, with tables": Shape(markov_rank=0, block_size=3, tie=True, tables="include", heads=3, kv_heads=3),
    "rank that is no multiple of 32": Shape(markov_rank=24, hidden_size=72, heads=3, kv_heads=1, head_dim=16),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_position_agrees(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    parity = prove(make(shape, tmp_path), tmp_path, shape.tables)
    assert [p["position"] for p in parity["positions"]] == list(range(shape.block_size))
    has_confidence = shape.confidence != "none" and shape.markov_rank > 0
    assert (parity["confidence_max_abs"] is not None) == has_confidence
    taps = [(feature["file_tap"], feature["reference_tap"]) for feature in parity["features"]]
    assert taps == [(tap + 1, tap + 1) for tap in shape.taps]


def test_a_draft_for_a_target_whose_positions_have_axes(tmp_path: Path) -> None:
    shape = Shape()
    pair = make(shape, tmp_path)
    config = json.loads((pair.target_dir / "config.json").read_text("utf-8"))
    config["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": shape.rope_theta,
        "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
    }
    (pair.target_dir / "config.json").write_text(json.dumps(config), "utf-8")
    parity = prove(pair, tmp_path, shape.tables)
    assert len(parity["positions"]) == shape.block_size
    with open_gguf(tmp_path / "dspark-draft.gguf") as file:
        assert list(file.metadata["dflash.rope.dimension_sections"]) == [16, 0, 0, 0]
