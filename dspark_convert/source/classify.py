"""Says in words what a directory holds when it is not what was asked for."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

#: tensors that only the kind named can have, most telling first
_EVIDENCE = (
    (r"mtp\.\d+\.(main_proj|markov_head)\.", "a DeepSeek-V4 checkpoint with DSpark stages in it"),
    (r"mtp\.\d+\.(enorm|hnorm|e_proj|h_proj|eh_proj)", "a checkpoint with ordinary MTP layers and no DSpark draft"),
    (r"mtp\.\d+\.", "a checkpoint with mtp.* layers, but neither the first nor the last stage of a DSpark draft"),
    (r"candidate_selector\.", "a DFlash2 draft"),
    (r"log_snr_", "a DSpark draft with log-SNR conditioning (Bonsai), which llama.cpp cannot run"),
    (r"(logit_head\.)?markov_head\.", "a DSpark draft"),
    (r"(fc|hidden_norm)\.weight", "a DFlash draft"),
)


def architectures(config: Mapping[str, Any]) -> list[str]:
    """The class names that config.json gives; empty if it gives none."""
    named = config.get("architectures")
    return [str(name) for name in named] if isinstance(named, list) else []


def names_draft(config: Mapping[str, Any]) -> bool:
    """Whether a class name is that of a draft, of whatever family."""
    words = ("DSpark", "DFlash", "MuseGlimmerAssistant")
    return any(word in name for name in architectures(config) for word in words)


def is_full_model(names: Collection[str]) -> bool:
    """Whether they are those of a language model that stands on its own."""
    embedded = "embed_tokens.weight" in names or "embed.weight" in names
    return "fc.weight" not in names and embedded and any(n.startswith("layers.0.") for n in names)


def telling(name: str) -> tuple[bool, str]:
    """Orders tensors' names: first those that tell what a draft is."""
    return re.search(r"markov|confidence|(^|[._])fc\.|(^|\.)layers\.", name) is None, name


def describe(config: Mapping[str, Any], names: Collection[str]) -> str:
    """A noun phrase: what the checkpoint with this config and these tensor names is."""
    label = ", ".join(architectures(config)) or "no architecture named"
    for pattern, what in _EVIDENCE:
        if any(re.match(pattern, name) for name in names):
            return f"{what} ({label})"
    if is_full_model(names):
        layers = {m[1] for n in names if (m := re.match(r"layers\.(\d+)\.", n))}
        return f"a full model ({label}, {len(layers)} layers), not a DSpark draft"
    if any(".lora_A." in name for name in names):
        return "a LoRA adapter, not a DSpark draft"
    if not names:
        return f"a checkpoint without tensors ({label})"
    return f"no draft that this tool knows ({label}; tensors such as {min(names, key=telling)})"
