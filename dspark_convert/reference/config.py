"""Typed look-ups in a config.json, and the questions that draft and target have in common."""

from __future__ import annotations

import json
from pathlib import Path
from sys import float_info
from typing import Any


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


def rope_theta(config: Config) -> float:
    """The base of the rotation, in any of its spellings.

    transformers 5 writes ``rope_parameters`` (flat, or one object per kind of layer), 4 wrote ``rope_theta``
    beside ``rope_scaling``. ``partial_rotary_factor`` and the mrope sections are left alone: Qwen3's rotary
    embedding does not read them (a draft inherits them with its target's config), and for text the sections
    change nothing.
    """
    for key in ("rope_parameters", "rope_parameters.full_attention", "rope_scaling"):
        kind = config.get(f"{key}.rope_type", f"{key}.type")
        if kind is None and key == "rope_scaling" and config.get(key) is not None:
            kind = "unnamed"
        if kind not in (None, "default"):
            raise ValueError(f"{config.path}: the reference cannot compute RoPE scaling ({key} of type {kind!r}).")
    for key in ("rope_is_neox_style", "is_neox_style"):
        if config.flag(key) is False:
            raise ValueError(f"{config.path}: the reference rotates NeoX pairs only, but {key} is false.")
    if config.flag("rope_interleaved"):
        raise ValueError(f"{config.path}: the reference rotates NeoX pairs only, but rope_interleaved is true.")
    return config.positive("rope_parameters.rope_theta", "rope_parameters.full_attention.rope_theta", "rope_theta")


def refuse_unknown_layers(config: Config) -> None:
    """Raises ValueError unless the layers are Qwen3's with attention to everything and SiLU."""
    for key in ("use_sliding_window", "dflash_config.use_swa"):
        if config.flag(key):
            raise ValueError(f"{config.path}: the reference cannot compute sliding windows ({key} is true).")
    kinds = config.get("layer_types") or ["full_attention"]
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise config.wrong("layer_types", "full_attention everywhere, which is all that the reference computes", kinds)
    if config.get("hidden_act") not in (None, "silu"):
        raise config.wrong("hidden_act", "silu", config.get("hidden_act"))
