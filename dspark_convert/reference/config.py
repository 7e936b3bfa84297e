"""Typed look-ups in a config.json, and the questions that draft and target have in common."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path
from sys import float_info
from typing import Any

#: speculators' object of the layers' keys, and what its draft says itself although that may say it too
LAYERS = "transformer_layer_config"
OWN = ("architectures", "tie_word_embeddings")


class Config:
    """A JSON file of a checkpoint. Keys are dotted paths; a value of null counts as absent."""

    def __init__(self, directory: Path, name: str = "config.json") -> None:
        self.path = directory / name
        if not self.path.is_file():
            raise ValueError(f"{directory} has no file {name}.")
        try:
            values = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError) as e:
            raise ValueError(f"{self.path} cannot be read as JSON: {e}.") from e
        if not isinstance(values, dict):
            raise ValueError(f"{self.path} holds no JSON object.")
        self.values: dict[str, Any] = values

    def flattened(self) -> Config:
        """With speculators' ``transformer_layer_config``, which says how the layers are, put at the top."""
        layers = self.get(LAYERS)
        if layers is None:
            return self
        if not isinstance(layers, dict):
            raise self.wrong(LAYERS, "an object", layers)
        flat = copy(self)
        own = {key: self.values[key] for key in OWN if key in self.values}
        flat.values = self.values | {key: value for key, value in layers.items() if value is not None} | own
        return flat

    def get(self, *keys: str) -> Any:
        """The value of the first of ``keys`` that is there, else None."""
        return self._find(keys)[1]

    def _find(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        for key in keys:
            value: Any = self.values
            for part in key.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                return key, value
        return keys[0], None

    def integer(self, *keys: str, minimum: int = 1, default: int | None = None) -> int:
        key, value = self._find(keys)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.wrong(key, f"a whole number of at least {minimum}", value)
        return value

    def positive(self, *keys: str) -> float:
        key, value = self._find(keys)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= float_info.max:
            raise self.wrong(key, "a positive number", value)
        return float(value)

    def flag(self, *keys: str) -> bool | None:
        """True, False, or None where none of ``keys`` is there."""
        key, value = self._find(keys)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def integers(self, key: str) -> tuple[int, ...] | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(type(item) is int for item in value):
            raise self.wrong(key, "a list of whole numbers", value)
        return tuple(value)

    def architecture(self) -> str:
        names = self.get("architectures")
        if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
            raise self.wrong("architectures", "a list of one class name", names)
        return names[0]

    def wrong(self, key: str, expected: str, value: object) -> ValueError:
        found = "nothing" if value is None else repr(value)
        return ValueError(f"{self.path}: {key} has to be {expected}, found {found}.")


def refuse_windows(config: Config) -> None:
    """Raises ValueError unless all layers look at everything."""
    for key in ("use_sliding_window", "dflash_config.use_swa"):
        if config.flag(key):
            raise ValueError(f"{config.path}: the reference cannot compute sliding windows ({key} is true).")
    kinds = config.get("layer_types") or ["full_attention"]
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise config.wrong("layer_types", "full_attention everywhere, which is all that the reference computes", kinds)


def require_silu(config: Config) -> None:
    if config.get("hidden_act") not in (None, "silu"):
        raise config.wrong("hidden_act", "silu", config.get("hidden_act"))
