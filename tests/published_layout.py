"""Lays out published drafts as their headers, from what ``fixtures/published*/NAME.json`` states of them."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path
from typing import Any

from tests.checkpoints import BITS, header_of


def read_facts(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    assert isinstance(document, dict)
    return document


def each_layer(entries: dict[str, Any], layers: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, entry in entries.items():
        numbers = range(layers) if "{layer}" in name else [0]
        result |= {name.replace("{layer}", str(i)): entry for i in numbers}
    return result


def lay_out_headers(root: Path, fact: dict[str, Any]) -> Path:
    """The checkpoint with a header and, behind it, the few values that planning reads, and a hole for the weights."""
    root.mkdir(parents=True)
    (root / "config.json").write_text(json.dumps(fact["config"]))
    tensors = each_layer(fact["tensors"], fact["layers"])
    values = _values(tensors)
    ordered = sorted(tensors.items(), key=lambda entry: entry[0] not in values)
    sizes = {name: (dtype, tuple(shape), prod(shape) * BITS[dtype] // 8) for name, (dtype, shape) in ordered}
    assert (len(sizes), sum(size for _, _, size in sizes.values())) == (
        fact["checkpoint_tensors"],
        fact["checkpoint_bytes"],
    )
    with (root / "model.safetensors").open("wb") as file:
        header = header_of(sizes)
        file.write(header)
        file.write(b"".join(values[name] for name in sizes if name in values))
        file.truncate(len(header) + fact["checkpoint_bytes"])
    return root


def _values(tensors: dict[str, Any]) -> dict[str, bytes]:
    """A reduced vocabulary's two tables, which agree, and the numbers that multiply all of a matrix of NVFP4."""
    values = {name: struct.pack("<f", 0.01) for name in tensors if name.endswith(".weight_scale_2")}
    if "d2t" not in tensors:
        return values
    # What leads from the draft's tokens to the target's grows with every fourth of them.
    offsets = [107 + 5 * (i // 4) for i in range(tensors["d2t"][1][0])]
    known = bytearray(tensors["t2d"][1][0])
    for i, offset in enumerate(offsets):
        known[i + offset] = 1
    return values | {"d2t": struct.pack(f"<{len(offsets)}q", *offsets), "t2d": bytes(known)}
