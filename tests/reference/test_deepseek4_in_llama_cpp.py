"""DeepSeek-V4's reference computes what llama.cpp computes of the same checkpoint, in files not of the converter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from dspark_convert.reference.deepseek4 import Stage
from dspark_convert.reference.draft import Reference
from dspark_convert.reference.inputs import Rounding
from dspark_convert.reference.rotation import angles
from fixtures.deepseek4 import make_deepseek4
from fixtures.deepseek4_gguf import load_tensors, write_deepseek4_gguf
from tests.deepseek4_oracle import Layout, stored_values, write_deepseek4_draft

#: the window is 8 target positions: shorter than, as long as and longer than the prompt
LENGTHS = (1, 4, 8, 9, 40)

Blocks = Mapping[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_deepseek4(tmp_path_factory.mktemp("v4") / "model")
    write_deepseek4_gguf(directory, directory.parent / "target.gguf")
    return directory


@pytest.fixture(scope="module")
def blocks(checkpoint: Path) -> Callable[[Layout], Blocks]:
    """What llama.cpp drafts with a file of some layout."""
    done: dict[Layout, Blocks] = {}

    def run(layout: Layout) -> Blocks:
        if layout not in done:
            files = [checkpoint.parent / name for name in ("target.gguf", f"{layout}.gguf", f"{layout}.npz")]
            write_deepseek4_draft(checkpoint, files[1], layout)
            command = [sys.executable, "-m", "tests.reference.llama_blocks", *map(str, [*files, 5, 507, *LENGTHS])]
            root = Path(__file__).parents[2]
            child = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
            assert child.returncode == 0, child.stderr[-2000:]
            done[layout] = np.load(files[2])
        return done[layout]

    return run


def distances(found: Blocks, reference: Reference, lengths: tuple[int, ...] = LENGTHS) -> np.ndarray[Any, Any]:
    """[lengths, slots]: the largest difference of the logits over their deviation; confidences must agree as well."""
    rows = []
    for n in lengths:
        block = reference.block(found[f"features{n}"], int(found[f"anchor{n}"]), found[f"drafts{n}"].tolist())
        rows.append(np.abs(found[f"logits{n}"] - block.logits).max(1) / block.logits.std(1))
        assert block.confidence is not None
        rows[-1] = np.maximum(rows[-1], np.abs(found[f"confidences{n}"] - block.confidence))
    return np.array(rows)


def load(checkpoint: Path, *, window_by_distance: bool = True, **options: Any) -> Reference:
    return Reference.load(checkpoint, float32_angles=True, window_by_distance=window_by_distance, **options)


def test_agrees_at_every_position_in_f32(checkpoint: Path, blocks: Callable[[Layout], Blocks]) -> None:
    assert distances(blocks("f32"), load(checkpoint)).max() < 2e-5


def test_llama_cpp_counts_the_window_from_each_slot(checkpoint: Path, blocks: Callable[[Layout], Blocks]) -> None:
    """By definition all slots see the same 8 positions. It shows as soon as the last slot reaches too far back."""
    by_definition = load(checkpoint, window_by_distance=False)
    assert distances(blocks("f32"), by_definition, (1,)).max() < 2e-5
    assert distances(blocks("f32"), by_definition, (8, 9, 40)).min() > 0.05


def test_rotating_the_other_way_shows_at_every_position(
    checkpoint: Path, blocks: Callable[[Layout], Blocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stage, "turn", turn_neox)
    assert distances(blocks("f32"), load(checkpoint)).min() > 0.1


def turn_neox(self: Stage, x: torch.Tensor, positions: torch.Tensor, *, back: bool = False) -> torch.Tensor:
    half = self.facts.rope_dims // 2
    still, first, second = x[..., : -2 * half], x[..., -2 * half : -half], x[..., -half:]
    by = angles(positions, half, self.sizes.theta, float32=True).unsqueeze(1) * (-1 if back else 1)
    cos, sin = by.cos(), by.sin()
    return torch.cat((still, first * cos - second * sin, second * cos + first * sin), -1)


def test_the_published_layout_has_its_tensors_and_types(checkpoint: Path, blocks: Callable[[Layout], Blocks]) -> None:
    blocks("published")
    tensors = gguf.GGUFReader(checkpoint.parent / "published.gguf").tensors
    kinds = [tensor.tensor_type.name for tensor in tensors]
    assert {kind: kinds.count(kind) for kind in kinds} == {"F32": 41, "Q8_0": 25, "BF16": 6, "MXFP4": 9}


def test_agrees_in_the_published_layout_if_inputs_are_rounded_as_llama_cpp_does(
    checkpoint: Path, blocks: Callable[[Layout], Blocks]
) -> None:
    """Nearly always: an input in the middle of two steps may be rounded apart, and then so are others behind it."""
    found = blocks("published")
    values = stored_values(checkpoint)
    by_block = distances(found, load(checkpoint, weights=values, roundings=roundings(checkpoint))).max(1)
    assert np.median(by_block) < 2e-5
    assert distances(found, load(checkpoint, weights=values)).min() > 0.01


def roundings(checkpoint: Path) -> dict[str, Rounding]:
    """Of the matrices' inputs; what is of 32 bits is multiplied as it is."""
    rounded: dict[str, Rounding] = {}
    for name, tensor in load_tensors(checkpoint).items():
        if name.startswith("mtp.") and name.endswith(".weight") and tensor.dim() == 2:
            rounded[name] = "bf16" if tensor.dtype == torch.bfloat16 else "q8_0"
    return rounded
