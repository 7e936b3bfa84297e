"""The cache is as large as llama.cpp makes it, and the weights are those in the file."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dspark_convert.cli.memory import memory_line
from dspark_convert.draft import Draft
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.memory import Memory, estimate
from tests.runtime.pairs import PairFiles
from tests.runtime.stage_pairs import StagePair, make_stage_pair

MIB = 2**20


def draft_of(path: Path) -> Draft:
    with open_gguf(path) as file:
        draft = read_draft(file).draft
    assert draft is not None
    return draft


def test_its_line_fits_a_terminal() -> None:
    largest = Memory({"Q8_0": 10_270_000_000}, 2**20, 3_930_000_000)
    line = f"Memory: {memory_line(largest)}"
    assert line == "Memory: 14.2 GB: 10.3 GB of weights, 3.93 GB of F16 cache at 1,048,576 positions"
    assert len(line) == 80


def cached(target: Path, draft: Path, context: int) -> float:
    """MiB of keys and values in llama.cpp's log."""
    child = [sys.executable, "-m", "tests.cache_child", *map(str, (target, draft, context))]
    done = subprocess.run(child, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=60, check=False)
    log = done.stderr.split("the draft's context")[1]
    assert done.returncode == 0, log[-2000:]
    return sum(float(size) for size in re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", log))


@pytest.fixture(scope="module")
def stage_pair(tmp_path_factory: pytest.TempPathFactory) -> StagePair:
    return make_stage_pair(tmp_path_factory.mktemp("stages"))


@pytest.mark.parametrize("context", [4096, 10000])
def test_cache_of_layers(random_pair: PairFiles, context: int) -> None:
    memory = estimate(draft_of(random_pair.draft), [], context)
    assert memory.cache / MIB == pytest.approx(cached(random_pair.target, random_pair.draft, context), abs=0.011)
    assert memory.cache > MIB


@pytest.mark.parametrize("context", [256, 4096])
def test_cache_of_stages_with_a_window(stage_pair: StagePair, context: int) -> None:
    memory = estimate(draft_of(stage_pair.draft), [], context)
    assert memory.cache / MIB == pytest.approx(cached(stage_pair.target, stage_pair.draft, context), abs=0.011)
    assert memory.cache > MIB / 20


def test_layers_with_a_window_keep_that_much_and_a_batch(random_pair: PairFiles) -> None:
    draft = draft_of(random_pair.draft)
    whole = estimate(draft, [], 32768).cache
    windowed = replace(draft, sliding_window=1000, sliding_window_pattern=(True, *(False,) * (draft.n_layer - 1)))
    # 1,000 and 512 positions, up to the next multiple of 256
    layer = whole // draft.n_layer
    assert estimate(windowed, [], 32768).cache == whole - layer + layer * 1536 // 32768
    assert estimate(windowed, [], 1024).cache == estimate(draft, [], 1024).cache


def test_figures_by_hand(random_pair: PairFiles) -> None:
    """Qwen3-8B's draft: 5 layers of 8 heads of 128, keys and values of 2 bytes, 40,960 positions."""
    draft = replace(draft_of(random_pair.draft), n_layer=5, n_head_kv=8, head_dim=128, context_length=40960)
    memory = estimate(draft, [("BF16", 10), ("F32", 7), ("BF16", 20)])
    assert memory.cache == 5 * 40960 * 2 * 8 * 128 * 2 == 838_860_800
    assert memory.to_json() == {
        "weights": {"BF16": 30, "F32": 7},
        "weights_total": 37,
        "context": 40960,
        "kv_cache": 838_860_800,
        "kv_cache_type": "F16",
        "total": 838_860_837,
    }


def test_no_number_of_layers_takes_time(random_pair: PairFiles) -> None:
    """A stranger's file may name any."""
    draft = replace(
        draft_of(random_pair.draft), n_layer=2**32 - 1, sliding_window=7, sliding_window_pattern=(True,) * 4096
    )
    assert estimate(draft, [], 2**31).cache > 2**70
