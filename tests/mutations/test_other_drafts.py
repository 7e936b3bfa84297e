"""The mistakes that only drafts of another kind allow: bonus anchor, no or half a head, odd sizes, tap 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from gguf import GGUFValueType as Type

from fixtures.target_gguf import write_target_gguf
from tests.mutations.changes import lost, on
from tests.mutations.copies import Copy, Mutant
from tests.mutations.harness import SHARED, Bench, convert
from tests.mutations.metadata import add, without, write
from tests.mutations.targets import nothing
from tests.runtime.parity_case import PROMPTS, Config, Shape, edit, make, put

pytestmark = pytest.mark.usefixtures("one_thread")


class Kind(NamedTuple):
    """``harmless`` mutants are right for this kind: the tables of a tied target are one."""

    shape: Shape
    config: Callable[[Config], None]
    mutants: list[Mutant]
    harmless: tuple[Mutant, ...] = ()


def without_both(name: str) -> Callable[[Copy], None]:
    def change(file: Copy) -> None:
        del file.kv[f"dflash.{name}"], file.kv[f"dspark.{name}"]

    return change


def added_confidence(file: Copy) -> None:
    file.tensors |= {"conf_proj.weight": np.ones((1, 144), np.float32), "conf_proj.bias": np.ones(1, np.float32)}


def padded(value: float) -> Callable[[Copy], None]:
    """The columns of the confidence head that the checkpoint has not."""
    return on(["conf_proj.weight"], lambda a: np.where(np.arange(144) < 128, a, np.float32(value)))


PLAIN = Shape(draft_layers=1, intermediate_size=64, block_size=5)
RANK_0 = Shape(draft_layers=1, intermediate_size=64, block_size=5, markov_rank=0)

KINDS = {
    "tied": Kind(
        Shape(draft_layers=1, intermediate_size=64, block_size=5, tie=True),
        put(),
        [
            Mutant("head negated", on(["output.weight"], np.negative), "include"),
            Mutant("embeddings negated", on(["token_embd.weight"], np.negative), "include"),
        ],
        (Mutant("head borrowed", lost("output.weight"), "include"),),
    ),
    "bonus anchor": Kind(
        PLAIN,
        put(sample_from_anchor=False),
        [
            Mutant("anchor flag true", write("sample_from_anchor", True)),
            Mutant("anchor flag missing", without_both("sample_from_anchor")),
            Mutant("block_size - 1", write("block_size", 4)),
            Mutant("block_size + 1", write("block_size", 6)),
        ],
    ),
    "rank 0": Kind(
        RANK_0,
        put(),
        [
            Mutant("anchor flag false", write("sample_from_anchor", False)),
            Mutant("no head of zeros", lost("markov_w1.weight", "markov_w2.weight")),
            Mutant("one half of the head not zero", on(["markov_w2.weight"], lambda a: a + 1)),
            Mutant("the head not zero", on(["markov_w1.weight", "markov_w2.weight"], lambda a: a + np.float32(0.1))),
            Mutant("confidence flag true", write("has_confidence_head", True)),
        ],
    ),
    "rank 0, bonus anchor": Kind(
        RANK_0,
        put(sample_from_anchor=False),
        [
            Mutant("block_size - 1", write("block_size", 4)),
            Mutant("anchor flag true", write("sample_from_anchor", True)),
            Mutant("confidence flag true", write("has_confidence_head", True)),
        ],
    ),
    "hidden-only confidence": Kind(
        Shape(draft_layers=1, intermediate_size=64, block_size=5, confidence="hidden_only"),
        put(),
        [
            Mutant("padding not zero", padded(0.5)),
            Mutant("padding in front", on(["conf_proj.weight"], lambda a: np.roll(a, 16, axis=-1))),
            Mutant("no padding", on(["conf_proj.weight"], lambda a: a[:, :128])),
        ],
    ),
    "no confidence": Kind(
        Shape(draft_layers=1, intermediate_size=64, block_size=5, confidence="none"),
        put(),
        [
            Mutant("confidence flag true", write("has_confidence_head", True)),
            Mutant("confidence flag missing", without_both("has_confidence_head")),
            Mutant("a confidence head of its own", added_confidence),
        ],
    ),
    "heads of 80": Kind(
        Shape(draft_layers=1, intermediate_size=64, block_size=5, heads=3, kv_heads=1, head_dim=80, hidden_size=96),
        put(),
        [
            Mutant("key_length missing", without("dflash.attention.key_length")),
            Mutant("value_length missing", without("dflash.attention.value_length")),
            Mutant("one pair not rotated", add(rope__dimension_count=(Type.UINT32, 78))),
        ],
    ),
    "embeddings tapped": Kind(
        Shape(draft_layers=1, intermediate_size=64, block_size=5, taps=(-1, 2)),
        put(),
        [
            Mutant("tap 0 as layer 1", write("target_layers", [1, 3])),
            Mutant("tap 0 as -1", write("target_layers", [-1, 3])),
            Mutant("tap 0 kept, the other not shifted", write("target_layers", [0, 2])),
        ],
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_mutant_is_caught(name: str, tmp_path: Path) -> None:
    shape, config, mutants, harmless = KINDS[name]
    pair = edit(make(shape, tmp_path), config)
    target = tmp_path / "target.gguf"
    write_target_gguf(pair.target_dir, target)
    good: dict[str, Path] = {
        shared: convert(pair.draft_dir, pair.target_dir, tmp_path / f"dspark-{shared}.gguf", "f32", shared)
        for shared in SHARED
    }
    bench = Bench(tmp_path, pair.draft_dir, pair.target_dir, good, {"right": target}, PROMPTS, max_tokens=12)
    right = [Mutant("good", nothing), Mutant("good with tables", nothing, "include"), *harmless]
    verdicts = bench.judge_all([*right, *mutants])
    # It was not trained: what is accepted is so by chance.
    passed = [v.name for v in verdicts if not v.errors and set(v.failed) <= {"acceptance"}]
    assert passed == [mutant.name for mutant in right]
