"""DFlash2's reference computes what llama.cpp computes of the same checkpoint, in files not of the converter."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file

from dspark_convert.reference.dflash2 import Lattice
from dspark_convert.reference.draft import Block, Reference
from fixtures.dflash2 import make_dflash2_pair
from fixtures.target_gguf import write_target_gguf
from tests.dflash2_oracle import expected_dflash2
from tests.oracle import write

#: the window is 24 positions: longer than the prompt, reached by the last slots, and shorter
LENGTHS = (1, 4, 20, 60)

Found = Mapping[str, np.ndarray[Any, Any]]


def run(directory: Path, muse: bool, outtype: str = "f32", **options: Any) -> tuple[Path, Found]:
    """A draft checkpoint, and what llama.cpp computes of it."""
    pair = make_dflash2_pair(directory, dtype="F32", muse=muse, **options)
    files = [directory / name for name in ("target.gguf", "draft.gguf", "found.npz")]
    write_target_gguf(pair.target_dir, files[0])
    write(expected_dflash2(pair.draft_dir, outtype), files[1], files[0])
    block_size = 16 if muse else 8
    command = [
        sys.executable,
        "-m",
        "tests.reference.llama_blocks",
        *map(str, [*files, block_size, 507, *LENGTHS]),
        *("bonus", "unsure", "selects=8"),
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


def drafted(found: Found, n: int) -> list[int]:
    """Llama.cpp's own lattice, walked."""
    return Lattice(found[f"candidates{n}"], found[f"scores{n}"], np.zeros(0)).walk()


@pytest.mark.parametrize("muse", [False, True])
def test_agrees_at_every_position_in_f32(tmp_path: Path, plain: tuple[Path, Found], muse: bool) -> None:
    directory, found = run(tmp_path, muse=True) if muse else plain
    reference = load(directory)
    assert distances(found, reference).max() < 2e-5
    for n in LENGTHS:
        told = block_of(found, reference, n)
        own = reference.block(found[f"features{n}"], int(found[f"anchor{n}"]), [0] * reference.facts.slots)
        assert told.lattice is not None and own.lattice is not None
        assert told.lattice.behind.max() < 2e-5
        assert drafted(found, n) == own.lattice.walk()
        assert drafted(found, n) != found[f"logits{n}"].argmax(1).tolist()


def test_agrees_with_three_taps_and_scaled_embeddings(tmp_path: Path) -> None:
    directory, found = run(tmp_path, muse=False, dflash={"conv_kernel_size": 3, "input_embedding_scale": 2.5})
    assert distances(found, load(directory)).max() < 2e-5


def test_agrees_in_q8_0_if_inputs_are_rounded_as_llama_cpp_does(tmp_path: Path) -> None:
    """Rows that are no multiple of 32 long, as the codebooks' here, are kept in F16, and are looked up only."""
    directory, found = run(tmp_path, muse=False, outtype="q8_0")
    values, roundings = {}, {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        if tensor.dim() == 2:
            kind = Type.F16 if tensor.shape[1] % 32 else Type.Q8_0
            values[name] = dequantize(quantize(tensor.numpy(), kind), kind).astype(np.float32)
            roundings[name] = "q8_0"
    assert np.median(distances(found, load(directory, weights=values, roundings=roundings))) < 3e-6
    assert distances(found, load(directory, weights=values)).min() > 0.01


def test_scale_and_cap_of_the_logits_are_applied(tmp_path: Path) -> None:
    directory, found = run(tmp_path, muse=True)
    assert distances(found, load(directory, plain_logits=True)).min() > 0.5


@pytest.mark.parametrize("size", [23, 25])
def test_a_window_of_another_size_shows_where_it_ends(plain: tuple[Path, Found], size: int) -> None:
    """24 positions count the slot itself: of 20 before the block, slot 4 no longer sees the first."""
    directory, found = plain
    other = directory.with_name(f"window{size}")
    shutil.copytree(directory, other)
    text = (other / "config.json").read_text(encoding="utf-8")
    (other / "config.json").write_text(text.replace('"sliding_window": 24', f'"sliding_window": {size}'), "utf-8")
    apart = distances(found, load(other))
    assert apart[:2].max() < 2e-5
    assert apart[2:, -1].min() > 0.01


def swap_sides(base: torch.Tensor) -> torch.Tensor:
    return base.flip(0)


def swap_taps(base: torch.Tensor) -> torch.Tensor:
    return base.flip(1)


@pytest.mark.parametrize("how", [swap_sides, swap_taps])
def test_sides_and_taps_the_other_way_round_show(
    plain: tuple[Path, Found], how: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    directory, found = plain
    kernels = {
        name: how(tensor)
        for name, tensor in load_file(directory / "model.safetensors").items()
        if name.endswith("base_kernel")
    }
    assert distances(found, load(directory, weights=kernels)).min() > 0.1


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1)], ids=["tap-side-group", "side-group-tap"])
def test_another_order_of_the_projections_rows_shows(plain: tuple[Path, Found], order: tuple[int, ...]) -> None:
    directory, found = plain
    reordered = {
        name: tensor.view(2, 2, 8, 128).permute(*order, 3).reshape(32, 128)
        for name, tensor in load_file(directory / "model.safetensors").items()
        if "kernel_projection" in name
    }
    assert distances(found, load(directory, weights=reordered)).min() > 0.05
