"""Published DeepSeek-V4 drafts laid out as headers: an index for the whole target, the draft's shards with holes.

``fixtures/published_stages/NAME.json`` states config.json, the draft's tensors (those of the stages and of the
experts once), how many there are and how many bytes they have in all, and for Flash what llama.cpp's own
converter of October 2026 makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from tests.checkpoints import BITS, header_of

PUBLISHED = Path(__file__).parent.parent / "fixtures" / "published_stages"

#: name -> dtype, shape
Layout = dict[str, tuple[str, tuple[int, ...]]]


def facts(name: str) -> dict[str, Any]:
    document = json.loads((PUBLISHED / f"{name}.json").read_text())
    assert isinstance(document, dict)
    return document


def each(entries: dict[str, Any], stages: int, experts: int) -> Iterator[tuple[str, Any]]:
    """The entries with ``{layer}`` and ``{expert}`` counted out."""
    for name, entry in entries.items():
        layers = range(stages) if "{layer}" in name else [0]
        numbers = range(experts) if "{expert}" in name else [0]
        for i, e in product(layers, numbers):
            yield name.replace("{layer}", str(i)).replace("{expert}", str(e)), entry


def layout(fact: dict[str, Any], experts: int | None = None) -> Layout:
    """The draft's tensors; with fewer ``experts`` the router has fewer rows too."""
    count = fact["experts"] if experts is None else experts
    result = {}
    for name, (dtype, shape) in each(fact["tensors"], fact["stages"], count):
        rows = [count, *shape[1:]] if ".ffn.gate." in name else shape
        result[name] = (dtype, tuple(rows))
    return result


def stage_shard(fact: dict[str, Any], name: str) -> str:
    """The last shards hold a stage each, as published."""
    number = fact["shards"] - fact["stages"] + 1 + int(name.split(".")[1])
    return f"model-{number:05d}-of-{fact['shards']:05d}.safetensors"


def write_config(root: Path, config: dict[str, Any]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.json").write_text(json.dumps(config))


def write_shards(root: Path, fact: dict[str, Any], tensors: Layout) -> None:
    """Headers, and behind each a hole in place of the weights."""
    shards: dict[str, dict[str, tuple[str, tuple[int, ...], int]]] = {}
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * BITS[dtype] // 8
        shards.setdefault(stage_shard(fact, name), {})[name] = (dtype, shape, size)
    for file, sizes in shards.items():
        header = header_of(sizes)
        with (root / file).open("wb") as opened:
            opened.write(header)
            opened.truncate(len(header) + sum(size for _, _, size in sizes.values()))


def write_index(root: Path, fact: dict[str, Any], tensors: Layout) -> dict[str, str]:
    """An index of as many tensors as the published one: the target's fill the shards before the stages'."""
    weight_map = {name: stage_shard(fact, name) for name in tensors}
    others, shards = fact["index_tensors"] - fact["checkpoint_tensors"], fact["shards"] - fact["stages"]
    if len(tensors) < fact["checkpoint_tensors"]:
        others = 100  # a small one
    for i in range(others):
        file = f"model-{i * shards // others + 1:05d}-of-{fact['shards']:05d}.safetensors"
        weight_map[f"layers.{i % 43}.ffn.experts.{i // 43}.w1.weight"] = file
    document = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (root / "model.safetensors.index.json").write_text(json.dumps(document))
    return weight_map


def lay_out(root: Path, name: str, *, experts: int | None = None) -> Path:
    """The published draft ``name``; of the target nothing but its names."""
    fact = facts(name)
    tensors = layout(fact, experts)
    if experts is None:
        sizes = [prod(shape) * BITS[dtype] // 8 for dtype, shape in tensors.values()]
        assert (len(sizes), sum(sizes)) == (fact["checkpoint_tensors"], fact["checkpoint_bytes"])
    else:
        fact["config"]["n_routed_experts"] = experts
        fact["config"]["num_experts_per_tok"] = min(2, experts)
    write_config(root, fact["config"])
    write_shards(root, fact, tensors)
    write_index(root, fact, tensors)
    return root
