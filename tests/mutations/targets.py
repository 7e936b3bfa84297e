"""Targets of the right sizes and tokens that the draft was not trained for, or that are broken themselves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from fixtures.target_gguf import write_target_gguf
from tests.mutations.copies import Copy, Mutant

Tensors = dict[str, torch.Tensor]


def targets() -> list[Mutant]:
    return [Mutant(f"a target with {name}", nothing, "omit", name) for name in WRONG] + [
        Mutant("a target of another seed, for a draft with tables", nothing, "include", "another seed"),
        Mutant("a target with other layers, for a draft with tables", nothing, "include", "other layers"),
    ]


def nothing(_file: Copy) -> None:
    """The draft is right; the target is not."""


def another_seed(tensors: Tensors) -> Tensors:
    generator = torch.Generator().manual_seed(1)
    random = {name: torch.randn(t.shape, generator=generator) * t.float().std() for name, t in tensors.items()}
    return {name: t if t.dim() == 1 else random[name].to(t.dtype) for name, t in tensors.items()}


def other_layers(tensors: Tensors) -> Tensors:
    """Only what lies between the tables is another model's."""
    return {name: t.flip(0).contiguous() if ".layers." in name else t for name, t in tensors.items()}


def one_rotated_layer(tensors: Tensors) -> Tensors:
    """Layer 0's queries and keys permuted as for NORM rotation: a wrong conversion of the target."""
    order = torch.arange(32).reshape(2, -1).T.reshape(-1)

    def permuted(t: torch.Tensor) -> torch.Tensor:
        return t.reshape(-1, 32, t.shape[-1])[:, order].reshape(t.shape).contiguous()

    parts = ("layers.0.self_attn.q_proj.", "layers.0.self_attn.k_proj.")
    return {name: permuted(t) if any(part in name for part in parts) else t for name, t in tensors.items()}


WRONG: dict[str, Callable[[Tensors], Tensors]] = {
    "another seed": another_seed,
    "other layers": other_layers,
    "one rotated layer": one_rotated_layer,
}


def write_wrong_targets(right: Path, root: Path) -> dict[str, Path]:
    """A GGUF for each kind of wrong target, made of the checkpoint ``right``."""
    tensors = load_file(right / "model.safetensors")
    found = {}
    for name, change in WRONG.items():
        directory = root / name.replace(" ", "-")
        shutil.copytree(right, directory)
        save_file(change(tensors), directory / "model.safetensors")
        found[name] = directory / "target.gguf"
        write_target_gguf(directory, found[name])
    return found
