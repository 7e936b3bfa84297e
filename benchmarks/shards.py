"""Writes checkpoints of any size quickly: random but valid values, cut from a pool that is drawn once."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: dtype and shape by tensor name, as in a safetensors header
Layout = Mapping[str, tuple[str, tuple[int, ...]]]

ITEM_BYTES = {"BF16": 2, "F32": 4, "I8": 1, "F8_E4M3": 1, "F8_E8M0": 1}

#: values in the pool; odd, so that no two rows of a matrix begin alike
POOL_VALUES = (1 << 22) + 7

WRITE_BYTES = 1 << 19


class Pool:
    """Bytes of each dtype. BF16 and F32 are normal with the deviation of trained weights, 0.02; FP8 codes are any but
    NaN, packed FP4 (I8) any; scales are between 2^-11 and 2^-6."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        normal = (random.standard_normal(POOL_VALUES, np.float32) * np.float32(0.02)).astype(np.float32)
        codes = random.integers(0, 256, POOL_VALUES, np.uint8)
        fp8 = np.where(codes & 0x7F == 0x7F, codes - 1, codes).astype(np.uint8)
        scales = random.integers(116, 122, POOL_VALUES, np.uint8)
        values: dict[str, NDArray[Any]] = {
            "F32": normal,
            # cut off, not rounded: any BF16 value will do
            "BF16": (normal.view(np.uint32) >> 16).astype(np.uint16),
            "I8": codes,
            "F8_E4M3": fp8,
            "F8_E8M0": scales,
        }
        self._bytes = {dtype: memoryview(array.tobytes()) for dtype, array in values.items()}

    def pieces(self, name: str, dtype: str, nbytes: int) -> Iterator[memoryview]:
        """``nbytes`` of ``dtype``; tensors of other names begin elsewhere in the pool."""
        pool, item = self._bytes[dtype], ITEM_BYTES[dtype]
        position = zlib.crc32(name.encode()) % (len(pool) // item) * item
        while nbytes:
            piece = pool[position : position + min(nbytes, WRITE_BYTES)]
            yield piece
            nbytes -= len(piece)
            position = (position + len(piece)) % len(pool)


def nbytes_of(layout: Layout) -> int:
    return sum(ITEM_BYTES[dtype] * prod(shape) for dtype, shape in layout.values())


def write_shards(directory: Path, shards: Mapping[str, Layout], *, elsewhere: Mapping[str, str] | None = None) -> None:
    """Write ``shards`` (file name -> its tensors) and their index.

    ``elsewhere`` are tensors of the index whose files are not there; if it is given the shards that are hold headers
    and a hole in place of the values.
    """
    pool = Pool() if elsewhere is None else None
    for name, layout in shards.items():
        _write_shard(directory / name, layout, pool)
    weight_map = dict(elsewhere or {}) | {tensor: name for name, layout in shards.items() for tensor in layout}
    index = {"metadata": {"total_size": sum(map(nbytes_of, shards.values()))}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")


def _write_shard(path: Path, layout: Layout, pool: Pool | None) -> None:
    header, end = {}, 0
    for name, (dtype, shape) in layout.items():
        start, end = end, end + ITEM_BYTES[dtype] * prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if pool is None:
            file.truncate(8 + len(text) + end)
            return
        for name, (dtype, shape) in layout.items():
            for piece in pool.pieces(name, dtype, ITEM_BYTES[dtype] * prod(shape)):
                file.write(piece)


def in_shards(layout: Layout, count: int) -> dict[str, Layout]:
    """``layout`` cut into ``count`` files of about equal size, named as Hugging Face names them."""
    share = nbytes_of(layout) / count
    shards: list[dict[str, tuple[str, tuple[int, ...]]]] = [{} for _ in range(count)]
    done = 0
    for name, entry in layout.items():
        shards[min(int(done // share), count - 1)][name] = entry
        done += nbytes_of({name: entry})
    return {f"model-{i:05}-of-{count:05}.safetensors": shard for i, shard in enumerate(shards, 1)}
