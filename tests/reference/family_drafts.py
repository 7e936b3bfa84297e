"""Small drafts of the families, with the tables that they lack, and changes to their configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from dspark_convert.reference.draft import Reference

#: two layers, and a window shorter than what stands before the block
SIZES: dict[str, Any] = {"layers": 2, "window": 9}

RANDOM = np.random.default_rng(5)
EMBED, HEAD = RANDOM.normal(size=(512, 128)), RANDOM.normal(size=(512, 128)) / 11


def load(directory: Path, **options: Any) -> Reference:
    (file,) = directory.glob("*.safetensors")
    with safe_open(file, "pt") as tensors:
        names = set(tensors.keys())
    tables = {"embed": ("embed_tokens.weight", EMBED), "head": ("lm_head.weight", HEAD)}
    lacking = {name: table for name, (stored, table) in tables.items() if stored not in names}
    return Reference.load(directory, **lacking, **options)


def rewrite(directory: Path, **changes: Any) -> None:
    """Changes keys of the config; None takes one away."""
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}), encoding="utf-8")
