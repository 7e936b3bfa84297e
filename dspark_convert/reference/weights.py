"""The tensors of a checkpoint directory, and the precision that they are computed in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from dspark_convert.reference import nvfp4
from dspark_convert.reference.config import Config
from dspark_convert.reference.inputs import Rounding, round_input

Array = torch.Tensor | np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Shape = tuple[int, ...]

EMBED, HEAD = "embed_tokens.weight", "lm_head.weight"
MARKOV_W2 = "markov_head.markov_w2.weight"

INDEX = "model.safetensors.index.json"

#: models with fewer parameters are computed in float64: exact for every type, and quick enough
SMALL = 50_000_000

FLOATS = ("F64", "F32", "F16", "BF16")
IDS = ("I64", "I32")

#: how other exports begin a name, and how DeepSpec does
SPELLINGS = {
    "model.": "",
    "logit_head.": "",
    "encoder.fc.": "fc.",
    "encoder.output_norm_enc.": "hidden_norm.",
    "confidence_proj.": "confidence_head.proj.",
}

#: two ends of a name for one thing
SINKS, SINKS_SPELLING = "self_attn.attention_sink_bias", "self_attn.sinks"

#: saved by some trainers: computed from the config, the inverse of another table, the target's own
LEFT_OUT = ("rotary_emb.inv_freq", "t2d", "verifier_norm.weight", "verifier_lm_head.weight")

#: of a reduced vocabulary, [draft vocabulary]: what to add to a draft's id for the target's
D2T = "d2t"


class Weights:
    """Tensors by name, in the dtype of the arithmetic.

    A large model's tensors stay in their file's memory map and type and are widened where they are used.
    ``roundings``: what happens to the inputs of which matrices, see ``inputs``.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], roundings: Mapping[str, Rounding] | None = None) -> None:
        self._roundings = roundings or {}
        small = sum(tensor.numel() for tensor in tensors.values()) < SMALL
        self.dtype = torch.float64 if small else torch.float32
        self._tensors = {name: tensor.to(self.dtype) if small else tensor for name, tensor in tensors.items()}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[name].to(self.dtype)

    def get(self, name: str) -> torch.Tensor | None:
        return self[name] if name in self._tensors else None

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """[..., columns] -> [..., rows], by the matrix ``name``."""
        return self.seen_by(name, x) @ self[name].T

    def seen_by(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """``x`` as the product with the matrix ``name`` takes it."""
        return round_input(x, self._roundings[name]) if name in self._roundings else x

    def rows(self, name: str, indices: torch.Tensor) -> torch.Tensor:
        return self._tensors[name][indices].to(self.dtype)


def as_tensor(value: Array) -> torch.Tensor:
    """``value`` as a tensor; arrays that cannot be written to, such as maps of files, are copied."""
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(np.require(value, requirements=["C", "W"]))


def plain_name(name: str) -> str:
    """A tensor's name as DeepSpec spells it."""
    for other, own in SPELLINGS.items():
        if name.startswith(other):
            name = own + name.removeprefix(other)
    return name.removesuffix(SINKS_SPELLING) + SINKS if name.endswith(SINKS_SPELLING) else name


def shard_paths(directory: Path) -> list[Path]:
    """The files that the index names, else all safetensors files of the directory."""
    if (directory / INDEX).is_file():
        shards = Config(directory, INDEX).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(file, str) for file in shards.values()):
            raise ValueError(f"{directory / INDEX} has no weight_map of tensor names and file names.")
        return [directory / file for file in sorted(set(shards.values()))]
    paths = sorted(path for path in directory.glob("*.safetensors") if path.is_file())
    if not paths:
        raise ValueError(f"{directory} holds no safetensors file.")
    return paths


def read_shapes(directory: Path) -> dict[str, Shape]:
    """Every tensor's shape (PyTorch order) by its plain name, from the files' headers; unpacked, if it is packed."""
    views = _open(directory)
    shapes = {name: tuple(views[name].get_shape()) for name in nvfp4.without_scales(views)}
    return {
        name: nvfp4.unpacked_shape(shape) if nvfp4.is_packed(views, name) else shape for name, shape in shapes.items()
    }


def read_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """Every tensor by its plain name, in the type of its file, mapped and not read; NVFP4 unpacked to float64."""
    views = _open(directory)
    tensors = {}
    for name in nvfp4.without_scales(views):
        if nvfp4.is_packed(views, name):
            tensors[name] = nvfp4.unpack(views, name)
        elif views[name].get_dtype() in (IDS if name == D2T else FLOATS):
            tensors[name] = views[name][...]
        else:
            kind = views[name].get_dtype()
            raise ValueError(f"{directory}: the reference cannot compute with {name} of type {kind}.")
    return tensors


def _open(directory: Path) -> dict[str, Any]:
    """safetensors' lazy slices of all tensors; raises ValueError for a broken file or a tensor that comes twice."""
    views: dict[str, Any] = {}
    for path in shard_paths(directory):
        if not path.is_file():
            raise ValueError(f"{path} is named in {INDEX} and is not there.")
        try:
            shard: Any = safe_open(path, framework="pt")
        except (OSError, SafetensorError) as e:
            raise ValueError(f"{path} cannot be read as a safetensors file: {e}.") from e
        for stored in shard.keys():  # noqa: SIM118 - not a mapping
            name = plain_name(stored)
            if name in views:
                raise ValueError(f"{path}: tensor {stored} is there twice.")
            if not name.endswith(LEFT_OUT):
                views[name] = shard.get_slice(stored)
    return views


def columns(shapes: Mapping[str, Shape], name: str) -> int:
    """The length of a tensor's last dimension; 0 without that tensor."""
    return (shapes.get(name) or (0,))[-1]


def replace(tensors: dict[str, torch.Tensor], replacements: Mapping[str, Array]) -> None:
    """Puts ``replacements`` (checkpoint names) in the place of tensors of equal name and shape."""
    for stored, value in replacements.items():
        name, tensor = plain_name(stored), as_tensor(value)
        if name not in tensors:
            raise ValueError(f"the checkpoint has no tensor {stored} to replace.")
        if tensors[name].shape != tensor.shape:
            raise ValueError(
                f"{stored} is {list(tensors[name].shape)} in the checkpoint, its replacement {list(tensor.shape)}."
            )
        tensors[name] = tensor


def check_shapes(where: Path, tensors: Mapping[str, torch.Tensor], expected: Mapping[str, Shape]) -> None:
    """Raises ValueError for a missing tensor, an unknown one, or one of another shape than ``expected``."""
    compare_shapes(where, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, expected)


def compare_shapes(where: Path, found: Mapping[str, Shape], expected: Mapping[str, Shape]) -> None:
    """As ``check_shapes``, of shapes."""
    for name, shape in expected.items():
        if name not in found:
            raise ValueError(f"{where} lacks tensor {name} of shape {list(shape)}.")
        if found[name] != shape:
            raise ValueError(f"{where}: {name} has to be {list(shape)}, found {list(found[name])}.")
    unknown = sorted(found.keys() - expected.keys())
    if unknown:
        raise ValueError(f"{where}: the reference does not know what tensor {unknown[0]} does.")
