"""Random pairs of a given shape, converted to F32 and compared with the reference at every position."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dspark_convert.runtime.validation import validate
from fixtures.hf_pair import TinyPair
from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair
from tests.mutations.harness import convert

#: the largest difference over the logits' deviation; an F32 sum in another order gives some 1e-6
RELATIVE = 1e-5
#: the largest difference of a confidence, which is 0…1
CONFIDENCE = 5e-6

Config = dict[str, Any]

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


def put(**values: Any) -> Callable[[Config], None]:
    return lambda config: config.update(values)


def edit(pair: TinyPair, change: Callable[[Config], None]) -> TinyPair:
    """Changes the draft's config.json."""
    path = pair.draft_dir / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    change(config)
    path.write_text(json.dumps(config), encoding="utf-8")
    return pair


def make(shape: Shape, root: Path) -> TinyPair:
    return make_tiny_pair(
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


def prove(pair: TinyPair, root: Path, tables: Literal["omit", "include"] = "omit") -> dict[str, Any]:
    """Converts and validates; the document's ``parity``, in which everything agrees."""
    target = root / "target.gguf"
    write_target_gguf(pair.target_dir, target)
    draft = convert(pair.draft_dir, pair.target_dir, root / "dspark-draft.gguf", "f32", tables)
    report = validate(
        draft,
        target,
        reference=pair.draft_dir,
        target_reference=pair.target_dir,
        prompts=PROMPTS,
        max_tokens=12,
        timeout=60,
    )
    failed = {check.name: check.detail for check in report.checks if check.status != "pass"}
    assert set(failed) <= {"acceptance"}, failed  # it knows nothing
    parity: dict[str, Any] = report.to_json()["parity"]
    worst = max(parity["positions"], key=lambda position: float(position["relative"]))
    assert 0 < worst["relative"] < RELATIVE, worst
    assert all(position["argmax_agree"] == 1 for position in parity["positions"])
    assert (parity["confidence_max_abs"] or 0) < CONFIDENCE
    assert all(feature["relative"] == 0 for feature in parity["features"])
    assert all(feature["target_relative"] < RELATIVE for feature in parity["features"])
    return parity
