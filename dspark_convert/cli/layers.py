"""What layers like Qwen3's have, in words: whom a slot sees, how heads rotate, what is scaled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspark_convert.cli.text import safe
from dspark_convert.draft import DFlash2, Draft

#: numbers of layers that are named; more are counted
SHOWN_LAYERS = 8
#: characters of a text that a file made up
SHOWN_TEXT = 40


def attention(draft: Draft) -> str:
    context = f"{draft.context_length:,}"
    sinks = ", with sinks" if draft.has_sinks else ""
    if not draft.sliding_window:
        return f"{_causal(draft)}, over the whole context of {context}{sinks}"
    pattern = draft.sliding_window_pattern
    where = f"in {_layers(pattern)}" if any(pattern) else "in no layer"
    if all(pattern):  # or none is given
        where = "in all stages" if draft.deepseek4 else "in all layers"
    return f"{_causal(draft)}, a window of {draft.sliding_window} {where}{sinks}, context {context}"


def _causal(draft: Draft) -> str:
    written = "causal" if draft.causal else "both ways"
    if len(set(draft.causal_pattern)) < 2:
        return f"{written} within the block"
    return f"causal within the block in {_layers(draft.causal_pattern)} only (llama.cpp runs all {written})"


def _layers(pattern: Sequence[bool]) -> str:
    numbers = [str(layer) for layer, marked in enumerate(pattern) if marked]
    if len(numbers) > SHOWN_LAYERS:
        return f"{len(numbers)} of {len(pattern)} layers"
    return f"layer{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def rotation(draft: Draft) -> str:
    rope = draft.rope
    pairs = "NeoX pairs (i, i + n/2)" if rope.style == "neox" else "neighbouring pairs (2i, 2i + 1)"
    last = "the last " if draft.deepseek4 else ""
    scaling = rope.scaling or {}
    turned = scaling.get("rotated", rope.dimension_count)
    text = f"{pairs}, {last}{turned} of {draft.head_dim} dimensions, base {rope.freq_base:,.10g}"
    return f"{text}, {_scaling(scaling)}" if scaling else text


def _scaling(scaling: dict[str, Any]) -> str:
    kind, factor = str(scaling.get("type")), scaling.get("factor")
    if kind == "proportional":
        return "at the frequencies of the whole head"
    named = {"yarn": "YaRN", "linear": "linearly"}.get(kind, safe(kind, SHOWN_TEXT))
    text = f"scaled {named} {factor:.6g} times" if factor is not None else f"scaled {named}"
    if "original_context_length" in scaling:
        text += f" from {scaling['original_context_length']:,} positions"
    if "attention_factor" in scaling:
        text += f", lengthened {scaling['attention_factor']:.6g} times"
    betas = [f"{name.replace('_', ' ')} {scaling[name]:.6g}" for name in ("beta_fast", "beta_slow") if name in scaling]
    return ", ".join([text, *betas])


def scales(draft: Draft) -> list[tuple[str, str]]:
    """One line where anything is scaled, else none."""
    parts = {
        "attention's scores": draft.attention_scale,
        "its output": draft.value_scale,
        "embeddings": draft.embedding_scale,
        "logits": draft.logit_scale,
    }
    words = [f"{what} times {value:.6g}" for what, value in parts.items() if value is not None]
    if draft.logit_softcap is not None:
        words.append(f"logits capped at {draft.logit_softcap:.6g}")
    if draft.kind != "dflash2" and (draft.logit_scale, draft.logit_softcap) != (None, None):
        words[-1] += " (not by llama.cpp)"
    return [("scales", ", ".join(words))] if words else []


def parts(dflash2: DFlash2, types: str) -> list[tuple[str, str]]:
    """DFlash2's lines; ``types``: those of the selector's tensors, in parentheses."""
    mixed = f"over {dflash2.conv_kernel_size} slots around attention and FFN"
    return [
        ("selector", f"rank {dflash2.selector_rank}, the best {dflash2.selector_top_k} tokens a slot{types}"),
        ("convolution", f"{mixed}, coefficients for every {dflash2.conv_group_size} channels"),
    ]
