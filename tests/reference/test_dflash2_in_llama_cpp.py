"""DFlash2's reference computes what llama.cpp computes of the same checkpoint, in files not of the converter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from dspark_convert.reference.draft import Block, Reference
from fixtures.dflash2 import make_dflash2_pair
from fixtures.target_gguf import write_target_gguf
from tests.dflash2_oracle import expected_dflash2
from tests.oracle import write

#: the window is 24 positions: longer than the prompt, reached by the last slots, and shorter
LENGTHS = (1, 4, 20, 60)

Found = Mapping[str, np.ndarray[Any, Any]]


def run(directory: Path, muse: bool, **options: Any) -> tuple[Path, Found]:
    """A draft checkpoint, and what llama.cpp computes of it."""
    pair = make_dflash2_pair(directory, dtype="F32", muse=muse, **options)
    files = [directory / name for name in ("target.gguf", "draft.gguf", "found.npz")]
    write_target_gguf(pair.target_dir, files[0])
    write(expected_dflash2(pair.draft_dir, "f32"), files[1], files[0])
    block_size = 16 if muse else 8
    command = [
        sys.executable,
        "-m",
        "tests.reference.llama_lattices",
        *map(str, [*files, block_size, 507, 8, *LENGTHS]),
    ]
    root = Path(__file__).parents[2]
    child = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
    return pair.draft_dir, np.load(files[2])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    return run(tmp_path_factory.mktemp("dflash2"), muse=False)


def load(directory: Path, **options: Any) -> Reference:
    """The draft with the target's tables."""
    tables = load_file(directory.parent / "target" / "model.safetensors")
    embed, head = tables["model.embed_tokens.weight"], tables["lm_head.weight"]
    return Reference.load(directory, embed=embed, head=head, float32_angles=True, **options)


def block_of(found: Found, reference: Reference, n: int) -> Block:
    slots = reference.facts.slots
    return reference.block(
        found[f"features{n}"], int(found[f"anchor{n}"]), [0] * slots, candidates=found[f"candidates{n}"]
    )


def distances(found: Found, reference: Reference) -> np.ndarray[Any, Any]:
    """[lengths, drafts]: the largest difference of logits and of scores, over the deviation of the slot's logits."""
    rows = []
    for n in LENGTHS:
        block = block_of(found, reference, n)
        assert block.lattice is not None
        deviation = block.logits[1:].std(1)
        logits = np.abs(found[f"logits{n}"] - block.logits[1:]).max(1) / deviation
        scores = np.abs(found[f"scores{n}"][1:] - block.lattice.scores[1:]).max((1, 2)) / deviation
        rows.append(np.maximum(logits, scores))
    return np.array(rows)


def test_agrees_at_every_position_in_f32(plain: tuple[Path, Found]) -> None:
    directory, found = plain
    assert distances(found, load(directory)).max() < 2e-5
