"""Gemma4's reference computes what llama.cpp computes of the same checkpoint, in files not of the converter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dspark_convert.reference.draft import Reference
from dspark_convert.reference.gemma4 import Gemma4Layer
from dspark_convert.reference.qwen3 import rms_norm
from dspark_convert.reference.rotation import angles, turn
from fixtures.gemma4 import make_gemma4_pair
from fixtures.target_gguf import write_target_gguf
from tests.gemma4_oracle import expected_gemma4
from tests.oracle import write

LENGTHS = (1, 4, 40)

Blocks = Mapping[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pair = make_gemma4_pair(tmp_path_factory.mktemp("gemma4"), dtype="F32")
    write_target_gguf(pair.target_dir, pair.target_dir.parent / "target.gguf")
    return pair.draft_dir


@pytest.fixture(scope="module")
def blocks(checkpoint: Path) -> Callable[..., Blocks]:
    """What llama.cpp drafts with a file whose tables are its own ("include") or the target's ("omit")."""
    done: dict[tuple[str, str], Blocks] = {}

    def run(shared: str, outtype: str = "f32") -> Blocks:
        if (shared, outtype) not in done:
            name = f"{shared}-{outtype}"
            files = [checkpoint.parent / name for name in ("target.gguf", f"{name}.gguf", f"{name}.npz")]
            write(expected_gemma4(checkpoint, outtype, shared=shared), files[1], files[0])
            command = [sys.executable, "-m", "tests.reference.llama_blocks", *map(str, [*files, 7, 507, *LENGTHS])]
            root = Path(__file__).parents[2]
            child = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
            assert child.returncode == 0, child.stderr[-2000:]
            done[shared, outtype] = np.load(files[2])
        return done[shared, outtype]

    return run


def distances(found: Blocks, reference: Reference) -> np.ndarray[Any, Any]:
    """[lengths, slots]: the largest difference of the logits over their deviation; confidences must agree as well."""
    rows = []
    for n in LENGTHS:
        block = reference.block(found[f"features{n}"], int(found[f"anchor{n}"]), found[f"drafts{n}"].tolist())
        rows.append(np.abs(found[f"logits{n}"] - block.logits).max(1) / block.logits.std(1))
        assert block.confidence is not None
        rows[-1] = np.maximum(rows[-1], np.abs(found[f"confidences{n}"] - block.confidence))
    return np.array(rows)


def load(checkpoint: Path, *, plain_logits: bool = True, table_gelu: bool = True, **options: Any) -> Reference:
    return Reference.load(checkpoint, float32_angles=True, plain_logits=plain_logits, table_gelu=table_gelu, **options)


@pytest.mark.parametrize("shared", ["include", "omit"])
def test_agrees_at_every_position_in_f32(checkpoint: Path, blocks: Callable[..., Blocks], shared: str) -> None:
    """An input of GELU in the middle of two float16 may be rounded apart, and moves the slots that see it a little."""
    found = distances(blocks(shared), load(checkpoint))
    assert np.median(found) < 3e-6
    assert found.max() < 1e-3


def test_agrees_in_bf16_if_inputs_are_rounded_as_llama_cpp_does(
    checkpoint: Path, blocks: Callable[..., Blocks]
) -> None:
    """Nearly always, as in F32."""
    matrices = {
        name: tensor.to(torch.bfloat16).float()
        for name, tensor in load_file(checkpoint / "model.safetensors").items()
        if tensor.dim() == 2
    }
    found = blocks("include", "bf16")
    roundings = dict.fromkeys(matrices.keys() - {"embed_tokens.weight"}, "bf16")
    apart = distances(found, load(checkpoint, weights=matrices, roundings=roundings))
    assert np.median(apart) < 3e-6
    assert distances(found, load(checkpoint, weights=matrices)).min() > 0.003


def test_by_its_formula_gelu_differs_at_every_position(checkpoint: Path, blocks: Callable[..., Blocks]) -> None:
    found = distances(blocks("include"), load(checkpoint, table_gelu=False))
    assert found.min() > 1e-4
    assert found.max() < 2e-3


def test_llama_cpp_does_not_cap_the_logits(checkpoint: Path, blocks: Callable[..., Blocks]) -> None:
    assert distances(blocks("include"), load(checkpoint, plain_logits=False)).min() > 0.1


def test_turning_all_pairs_shows_at_every_position(
    checkpoint: Path, blocks: Callable[..., Blocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more, the further from position 0: the pairs that stand still would turn slowly."""
    monkeypatch.setattr(Gemma4Layer, "turn", turn_all)
    found = distances(blocks("include"), load(checkpoint))
    assert found.min() > 0.01
    assert found[-1].min() > 0.3


def turn_all(self: Gemma4Layer, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return turn(x, angles(positions, self.sizes.head_dim // 2, self.sizes.theta, float32=True))


def test_norms_that_add_one_show_at_every_position(
    checkpoint: Path, blocks: Callable[..., Blocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Gemma's norms up to the third did."""
    monkeypatch.setattr(Gemma4Layer, "norm", lambda self, x, name: rms_norm(x, self.weight(name) + 1, self.sizes.eps))
    assert distances(blocks("include"), load(checkpoint)).min() > 0.1


def test_dividing_scores_by_the_heads_size_shows_at_every_position(
    checkpoint: Path, blocks: Callable[..., Blocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = Gemma4Layer.queries
    monkeypatch.setattr(Gemma4Layer, "queries", lambda self, h, at: queries(self, h, at) / self.sizes.head_dim**0.5)
    assert distances(blocks("include"), load(checkpoint)).min() > 0.1
