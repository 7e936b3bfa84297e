"""Which layers of a draft see a window only, and which see the block from one side only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dspark_convert.findings import Finding, error, warning

WINDOWED = "sliding_attention"
#: of transformers' Qwen3Config: where no list names the layers, those from this one on are windowed
MAX_WINDOW_LAYERS = 28


def windowed(v: Mapping[str, Any]) -> tuple[bool, ...]:
    """Per layer, whether it sees ``sliding_window`` positions only; empty if none does.

    ``use_swa`` (dflash_config) means all layers; ``use_sliding_window`` false means none, whatever
    ``layer_types`` says, as in transformers; without either the list decides.
    """
    if "sliding_window" not in v:
        return ()
    pattern = (True,) * v["n_layer"] if v.get("use_swa") else _sliding(v)
    return pattern if any(pattern) else ()


def _sliding(v: Mapping[str, Any]) -> tuple[bool, ...]:
    """Per layer, whether it is of transformers' type for windows."""
    layers = range(v["n_layer"])
    if v.get("use_sliding_window") is False and not v.get("use_swa"):
        return tuple(False for _ in layers)
    if "layer_types" in v:
        return tuple(kind == WINDOWED for kind in v["layer_types"][: len(layers)])
    first = v.get("max_window_layers", MAX_WINDOW_LAYERS) if v.get("use_sliding_window") else len(layers)
    return tuple(layer >= first for layer in layers)


def judge(v: Mapping[str, Any]) -> list[Finding]:
    """Windows that nothing says the length of, a length that no layer has, and windows that are switched off."""
    listed = WINDOWED in v.get("layer_types", ())
    if listed and v.get("use_sliding_window") is False and not v.get("use_swa"):
        return [_switched_off()]
    if "sliding_window" in v:
        return _unused(v)
    if not (listed or v.get("use_sliding_window") or v.get("use_swa")):
        return []
    message = "the draft's layers see a window, and config.json has no sliding_window, which says its length."
    return [error("config-missing", "sliding_window", message, "take the config that was published with the draft")]


def _unused(v: Mapping[str, Any]) -> list[Finding]:
    if not v.get("use_sliding_window") or "n_layer" not in v or windowed(v):
        return []
    message = (
        f"the config says that windows of {v['sliding_window']} are used (use_sliding_window), but none of the "
        f"{v['n_layer']} layers has one: {_why_none(v)}."
    )
    return [warning("window-without-layers", "sliding_window", message, "check the config against its training run")]


def _switched_off() -> Finding:
    message = (
        "layer_types names windowed layers, but use_sliding_window is false: no layer gets a window, as in "
        "transformers."
    )
    return warning("window-without-layers", "use_sliding_window", message, "check the config against its training run")


def _why_none(v: Mapping[str, Any]) -> str:
    if "layer_types" in v:
        return "layer_types names none"
    return f"without layer_types they begin at layer {v.get('max_window_layers', MAX_WINDOW_LAYERS)}"


def causal(v: Mapping[str, Any]) -> tuple[bool, tuple[bool, ...]]:
    """Whether the block's slots see only those before them, and per layer where layers differ.

    A flag is for all layers. Without one those of the windowed type are causal, unless ``windows_causal`` is false
    (vLLM's ``qwen3_dflash.py``, z-lab's and SpecForge's classes); windows by ``use_swa`` alone make none causal.
    llama.cpp knows one answer for all layers: that of most of them, both ways where they are as many.
    """
    flag = v.get("causal")
    if flag is not None:
        return bool(flag), ()
    pattern = tuple(bool(v.get("windows_causal")) and sliding for sliding in _sliding(v))
    most = 2 * sum(pattern) > len(pattern)
    return most, () if len(set(pattern)) == 1 else pattern


def fields(v: Mapping[str, Any]) -> dict[str, Any]:
    """As keyword arguments of a Draft. A family that knows no full layers (DeepSeek-V4) has no pattern."""
    if "use_swa" not in v:
        return {"sliding_window": v.get("sliding_window")}
    windows = windowed(v)
    one_sided, pattern = causal(v)
    return {
        "causal": one_sided,
        "causal_pattern": pattern,
        "sliding_window": v["sliding_window"] if windows else None,
        "sliding_window_pattern": windows,
    }
