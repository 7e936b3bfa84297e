"""The tensors of a checkpoint as numbers, each decoded where it is read: a draft's experts are never all in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: numbers that an int8 of the checkpoint holds
PAIR = 2

#: numbers that share a scale: of a DeepSeek-V4 draft's FP4, of NVFP4
FP4_BLOCK, NVFP4_BLOCK = 32, 16


class Stored(Mapping[str, "torch.Tensor"]):
    """``tensors`` by their plain names, quantised ones with their scales (``x.scale`` of ``x.weight``) or not.

    ``tile``: the side of the squares that share an FP8 scale; 0 where nothing is quantised.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], tile: int = 0) -> None:
        self._tensors = tensors
        self._tile = tile

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.head(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors and not (isinstance(name, str) and self._is_scale(name))

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._tensors if not self._is_scale(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the numbers, without decoding them."""
        shape = tuple(self._tensors[name].shape)
        return (*shape[:-1], PAIR * shape[-1]) if self.fours(name) else shape

    def head(self, name: str, rows: int | None) -> torch.Tensor:
        """The first ``rows`` of a tensor; all with None."""
        tensor, scales = self._tensors[name], self._scales(name)
        if scales is None:
            return tensor[:rows]
        from dspark_convert.reference.deepseek4_weights import widen

        rows = len(tensor) if rows is None else min(rows, len(tensor))
        per_scale = 1 if self.fours(name) else self._tile
        return widen(tensor[:rows], scales[: -(-rows // per_scale)], self._tile)

    def fours(self, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Pairs of FP4 codes [rows, columns / 2] and scales [rows, columns / 32] as stored; None if it is not FP4."""
        tensor, scales = self._tensors[name], self._scales(name)
        if scales is None or tensor.is_floating_point():
            return None
        return tensor, scales

    def block(self, name: str) -> int:
        """How many numbers of its rows share a scale in the checkpoint; 0 if they are no codes of four bits."""
        if self.fours(name):
            return FP4_BLOCK
        return NVFP4_BLOCK if self.is_nvfp4(name) else 0

    def is_nvfp4(self, name: str) -> bool:
        """Whether the checkpoint has it in NVFP4: ``reference.weights.read_tensors`` gives the products as float64."""
        import torch

        return self._tensors[name].dtype == torch.float64

    def _scales(self, name: str) -> torch.Tensor | None:
        if not self._tile or not name.endswith(".weight"):
            return None
        return self._tensors.get(name.removesuffix("weight") + "scale")

    def _is_scale(self, name: str) -> bool:
        return bool(self._tile) and name.endswith(".scale") and name.removesuffix("scale") + "weight" in self._tensors
