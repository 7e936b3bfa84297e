"""Which pairs of a head's values llama.cpp rotates in a target, by its architecture."""

from __future__ import annotations

#: what ``llama_model_rope_type`` (src/llama-model.cpp) says of targets that drafts can tap, spelled without "-"
#: and "_"; of a llama's weights the converter turned q and k, so that it computes what neox does unturned
STYLES = {
    "neox": "gemma4 gptoss hunyuanvl lfm2 mimo2 mimov2 minimax01 minimaxm2 qwen3 qwen3moe qwen3next",
    "neox, several axes": "qwen35 qwen35moe qwen4exp",
    "norm": "bailingmoe3 deepseek4 deepseekv4 museglimmer nanbeige",
    "norm, weights turned": "llama",
    "none": "nemotronh",
}
_BY_NAME = {name: style for style, names in STYLES.items() for name in names.split()}


def style_of(architecture: str) -> str | None:
    """How a target of this ``general.architecture`` or ``model_type`` rotates; None where that is not known."""
    return _BY_NAME.get(architecture.replace("-", "").replace("_", ""))
