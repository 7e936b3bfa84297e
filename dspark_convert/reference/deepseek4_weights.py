"""The tensors of a DeepSeek-V4 draft: which they are in the checkpoint that holds the target too, and FP8 and FP4.

A matrix ``x.weight`` with a ``x.scale`` beside it is quantised: E4M3 numbers, of which a square tile shares a
scale, or pairs of E2M1 numbers in an int8, the low bits first, of which 32 in a row share one (OCP OFP8 1.0,
MX 1.0). Scales are powers of two, E8M0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from dspark_convert.reference.config import Config
from dspark_convert.reference.inputs import Rounding
from dspark_convert.reference.weights import (
    EMBED,
    HEAD,
    INDEX,
    SMALL,
    Array,
    Shape,
    Weights,
    as_tensor,
    shard_paths,
)

#: of the target, for drafts that borrow its tables
TABLES = {"embed.weight": EMBED, "head.weight": HEAD}

#: what a stage holds for the whole draft
SHARED = ("main_proj.", "main_norm.", "norm.", "hc_head_", "markov_head.", "confidence_head.", "embed.", "head.")

#: for image tokens, which a draft is not given
IGNORED = ".ffn.gate.bias_vl"

NUMBERS_A_SCALE = 32


class Quantised(Weights):
    """Tensors by name; a quantised one is widened where it is used, and one of ``elsewhere`` is read there."""

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        tile: int,
        roundings: Mapping[str, Rounding] | None = None,
        elsewhere: Mapping[str, Callable[[], torch.Tensor]] | None = None,
    ) -> None:
        plain = {name: tensor for name, tensor in tensors.items() if not is_packed(tensor)}
        super().__init__(plain, roundings)
        self._tile = tile
        self._elsewhere = elsewhere or {}
        self._packed = {name: tensor for name, tensor in tensors.items() if is_packed(tensor)}
        numbers = sum(tensor.numel() for tensor in tensors.values())
        self.dtype = torch.float64 if numbers < SMALL else torch.float32

    def __getitem__(self, name: str) -> torch.Tensor:
        if name in self._elsewhere:
            return self._elsewhere[name]().to(self.dtype)
        if name not in self._packed:
            return super().__getitem__(name)
        scales = self._packed[name.removesuffix("weight") + "scale"]
        return widen(self._packed[name], scales, self._tile).to(self.dtype)

    def get(self, name: str) -> torch.Tensor | None:
        return self[name] if name in self._packed or name in self._tensors else None


def is_packed(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.int8, torch.float8_e4m3fn, torch.float8_e8m0fnu)


def widen(codes: torch.Tensor, scales: torch.Tensor, tile: int) -> torch.Tensor:
    """The values [rows, columns], float32, of E4M3 codes of that shape or of int8 pairs [rows, columns / 2]."""
    factors = e8m0(scales.view(torch.uint8))
    if codes.dtype == torch.float8_e4m3fn:
        rows, columns = (torch.arange(size) // tile for size in codes.shape)
        return codes.to(torch.float32) * factors[rows][:, columns]
    pairs = codes.view(torch.uint8).int()
    fours = torch.stack((pairs % 16, pairs // 16), -1).flatten(1)
    columns = torch.arange(fours.shape[1]) // NUMBERS_A_SCALE
    return e2m1(fours) * factors[:, columns]


def e8m0(codes: torch.Tensor) -> torch.Tensor:
    """2 to the power of code - 127, float32; 255 is NaN."""
    powers = torch.ldexp(torch.ones(codes.shape), codes.int() - 127)
    return torch.where(codes == 255, torch.nan, powers)


def e2m1(codes: torch.Tensor) -> torch.Tensor:
    """Four bits: sign, two of exponent (bias 1), one of mantissa; exponent 0 is subnormal."""
    exponent, mantissa = codes // 2 % 4, codes % 2
    magnitude = torch.where(exponent == 0, mantissa / 2, torch.ldexp(1 + mantissa / 2, exponent - 1))
    return torch.where(codes >= 8, -magnitude, magnitude)


def plain_stage_name(stored: str) -> str:
    """A published name without its stage, where the tensor belongs to the whole draft, and tables as everywhere."""
    rest = stored.split(".", 2)[-1] if stored.startswith("mtp.") else stored
    return TABLES.get(rest, rest) if rest.startswith(SHARED) else stored


def read_stage_shapes(directory: Path) -> dict[str, Shape]:
    """The shapes of the draft's tensors as stored, by ``plain_stage_name``, from the files' headers."""
    return {name: tuple(view.get_shape()) for name, view in _open_stages(directory).items()}


def read_stage_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """The draft's tensors by ``plain_stage_name``, as stored, mapped and not read.

    The target's tables are among them if their shard is there.
    """
    return {name: view[...] for name, view in _open_stages(directory).items()}


def _open_stages(directory: Path) -> dict[str, Any]:
    own: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    for path, names in _names_of_shards(directory).items():
        needed = [name for name in names if name.startswith("mtp.") and not name.endswith(IGNORED)]
        if needed and not path.is_file():
            raise ValueError(f"{path} is named in {INDEX} and is not there.")
        tables = [name for name in names if name in TABLES]
        if not (needed or tables) or not path.is_file():
            continue
        try:
            shard: Any = safe_open(path, framework="pt")
            views = {name: shard.get_slice(name) for name in needed + tables}
        except (OSError, SafetensorError) as e:
            raise ValueError(f"{path} cannot be read as a safetensors file that holds {names[0]}: {e}.") from e
        for name, view in views.items():
            plain, place = plain_stage_name(name), targets if name in TABLES else own
            if plain in place:
                raise ValueError(f"{path}: tensor {name} is there twice.")
            place[plain] = view
    return targets | own


def _names_of_shards(directory: Path) -> dict[Path, list[str]]:
    """The tensors in each file: by the index, else by the files themselves."""
    names: dict[Path, list[str]] = {path: [] for path in shard_paths(directory)}
    if (directory / INDEX).is_file():
        for name, file in Config(directory, INDEX).get("weight_map").items():
            names[directory / file].append(name)
        return names
    for path in names:
        try:
            shard: Any = safe_open(path, framework="pt")
        except (OSError, SafetensorError) as e:
            raise ValueError(f"{path} cannot be read as a safetensors file: {e}.") from e
        names[path] = list(shard.keys())
    return names


def values_shapes(where: Path, tensors: Mapping[str, torch.Tensor], tile: int) -> dict[str, Shape]:
    """The shapes of what the tensors stand for, without scales; raises ValueError for scales that do not fit."""
    shapes: dict[str, Shape] = {}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and tensor.dtype != torch.int8:
            raise ValueError(f"{where}: the reference cannot compute with {name} of type {tensor.dtype}.")
        if not is_packed(tensor):
            shapes[name] = tuple(tensor.shape)
        elif tensor.dtype != torch.float8_e8m0fnu:
            shapes[name], scales = _packed_shapes(tensor, tile)
            beside = name.removesuffix("weight") + "scale"
            found = tensors.get(beside)
            if found is None or found.dtype != torch.float8_e8m0fnu or found.shape != scales:
                seen = "nothing" if found is None else f"{found.dtype} {list(found.shape)}"
                raise ValueError(f"{where}: {beside} has to be float8_e8m0fnu {list(scales)}, found {seen}.")
    return shapes


def _packed_shapes(codes: torch.Tensor, tile: int) -> tuple[Shape, Shape]:
    """The shapes of a quantised matrix's values and of its scales."""
    rows, columns = codes.shape
    if codes.dtype == torch.int8:
        return (rows, 2 * columns), (rows, 2 * columns // NUMBERS_A_SCALE)
    return (rows, columns), (-(-rows // tile), -(-columns // tile))


def replace_values(
    tensors: dict[str, torch.Tensor], replacements: Mapping[str, Array], shapes: Mapping[str, Shape]
) -> None:
    """Puts ``replacements`` (published names, values) in the place of tensors whose values have their shape."""
    for stored, value in replacements.items():
        name, tensor = plain_stage_name(stored), as_tensor(value)
        if shapes.get(name) != tensor.shape:
            raise ValueError(
                f"{stored} is {list(shapes.get(name, ()))} in the checkpoint, its replacement {list(tensor.shape)}."
            )
        tensors[name] = tensor
        tensors.pop(name.removesuffix("weight") + "scale", None)
