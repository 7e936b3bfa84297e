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
    """The checkpoint with a header and, behind it, a hole in place of the weights, ``d2t`` before it."""
    root.mkdir(parents=True)
    (root / "config.json").write_text(json.dumps(fact["config"]))
    tensors = each_layer(fact["tensors"], fact["layers"])
    ordered = sorted(tensors.items(), key=lambda entry: entry[0] != "d2t")
    sizes = {name: (dtype, tuple(shape), prod(shape) * BITS[dtype] // 8) for name, (dtype, shape) in ordered}
    assert (len(sizes), sum(size for _, _, size in sizes.values())) == (
        fact["checkpoint_tensors"],
        fact["checkpoint_bytes"],
    )
    with (root / "model.safetensors").open("wb") as file:
        header = header_of(sizes)
        file.write(header)
        if "d2t" in sizes:
            file.write(_offsets(sizes["d2t"][1][0]))
        file.truncate(len(header) + fact["checkpoint_bytes"])
    return root


def _offsets(count: int) -> bytes:
    """A table d2t: what leads from the draft's tokens to the target's grows with every fourth of them."""
    return struct.pack(f"<{count}q", *(107 + 5 * (i // 4) for i in range(count)))
