"""Random drafts of many shapes, converted to F32: llama.cpp and the reference agree at every position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from dspark_convert.runtime.validation import validate
from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair
from tests.mutations.harness import convert

#: the largest difference over the logits' deviation; an F32 sum in another order gives some 1e-6
RELATIVE = 1e-5
#: the largest difference of a confidence, which is 0…1
CONFIDENCE = 5e-6

PROMPTS = ("once upon a time there was", "the boat")


@dataclass(frozen=True)
class Shape:
    """``taps`` are Hugging Face layer outputs, -1 the embeddings; ``tables`` are in the file or borrowed."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    hidden_size: int = 128
    intermediate_size: int = 192
    draft_layers: int = 2
    block_size: int = 7
    markov_rank: int = 16
    taps: tuple[int, ...] = (0, 1, 2)
    confidence: Literal["with_markov", "hidden_only", "none"] = "with_markov"
    tie: bool = False
    rope_theta: float = 10_000.0
    tables: Literal["omit", "include"] = "omit"


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
    "only the embeddings tapped": Shape(taps=(-1,), confidence="none", head_dim=80, tie=True),
    "taps out of order": Shape(taps=(3, 0, 2), heads=4, kv_heads=1, block_size=5),
    "hidden-only confidence of a wide rank": Shape(confidence="hidden_only", markov_rank=256, block_size=10),
    "no confidence, tied": Shape(confidence="none", tie=True, block_size=12, head_dim=64, kv_heads=4),
    "rank 0": Shape(markov_rank=0, block_size=7, taps=(1, 2)),
    "rank 0, tied, with tables": Shape(markov_rank=0, block_size=3, tie=True, tables="include", heads=3, kv_heads=3),
    "rank that is no multiple of 32": Shape(markov_rank=24, hidden_size=72, heads=3, kv_heads=1, head_dim=16),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost models as small as these more than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", SHAPES)
def test_every_position_agrees(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    report = run(shape, tmp_path)
    failed = {check["name"]: check["detail"] for check in report["checks"] if check["status"] != "pass"}
    assert set(failed) <= {"acceptance"}, failed  # it knows nothing
    parity = report["parity"]
    assert [p["position"] for p in parity["positions"]] == list(range(shape.block_size))
    worst = max(parity["positions"], key=lambda position: position["relative"])
    assert 0 < worst["relative"] < RELATIVE, worst
    assert all(position["argmax_agree"] == 1 for position in parity["positions"])
    has_confidence = shape.confidence != "none" and shape.markov_rank > 0
    assert (parity["confidence_max_abs"] is not None) == has_confidence
    assert (parity["confidence_max_abs"] or 0) < CONFIDENCE
    taps = [(feature["file_tap"], feature["reference_tap"]) for feature in parity["features"]]
    assert taps == [(tap + 1, tap + 1) for tap in shape.taps]
    assert all(feature["relative"] == 0 for feature in parity["features"])
    assert all(feature["target_relative"] < RELATIVE for feature in parity["features"])


def run(shape: Shape, root: Path) -> Any:
    pair = make_tiny_pair(
        root,
        dtype="F32",
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        target_layers_count=max(4, max(shape.taps) + 2),
        draft_layers=shape.draft_layers,
        block_size=shape.block_size,
        markov_rank=shape.markov_rank,
        target_layer_ids=shape.taps,
        confidence=shape.confidence,
        tie=shape.tie,
        rope_theta=shape.rope_theta,
    )
    target = root / "target.gguf"
    write_target_gguf(pair.target_dir, target)
    draft = convert(pair.draft_dir, pair.target_dir, root / "dspark-draft.gguf", "f32", shape.tables)
    report = validate(
        draft,
        target,
        reference=pair.draft_dir,
        target_reference=pair.target_dir,
        prompts=PROMPTS,
        max_tokens=12,
        timeout=60,
    )
    return report.to_json()
