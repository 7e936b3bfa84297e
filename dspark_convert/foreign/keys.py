"""Writing in other layouts than mainline's: what each can hold, and mainline's words in its own.

The tables are those that reading uses (``ggufio.layouts``); whatever a layout has no word for is left
out only where reading it back gives the same draft, and refused otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.layouts import Layout, dialect_key, dialect_name, layout_named
from dspark_convert.ggufio.layouts.names import MAINLINE, OWN
from dspark_convert.ggufio.layouts.view import MASK, TAPS
from dspark_convert.ggufio.types import KV, array, string
from dspark_convert.shared import EMBEDDINGS, HEAD, TABLES

ARCHITECTURE = "general.architecture"
WITH_MAINLINE = "use --dialect dflash"
WITHOUT_TABLES = "use --shared-tensors omit or --dialect dflash"


def judge_dialect(dialect: str, draft: Draft, *, included: bool = True) -> list[Finding]:
    """Why ``draft`` cannot be written in the layout ``dialect``; KeyError if there is no such layout.

    ``included``: its tables were asked for, so that it could do without. The head of a reduced vocabulary cannot.
    """
    layout = layout_named(dialect)
    if layout.unwritten:
        reasons = [("layout", layout.unwritten)]
    elif layout.is_mainline:
        reasons = []
    else:
        reasons = list(_reasons(layout, draft))
    title = layout.title.partition(" (")[0]
    reduced = draft.draft_vocab_size != draft.vocab_size
    spare = (EMBEDDINGS,) if reduced else TABLES
    return [
        error(
            "dialect",
            where,
            f"{title} is not written: {reason}.",
            WITHOUT_TABLES if included and where in spare else WITH_MAINLINE,
        )
        for where, reason in reasons
    ]


def _reasons(layout: Layout, draft: Draft) -> Iterator[tuple[str, str]]:
    can = layout.expresses
    if can.backbone == "layers" and draft.deepseek4:
        yield "backbone", "it has no DeepSeek-V4 drafts"
    if can.backbone == "stages" and not draft.deepseek4:
        yield "backbone", "it has DeepSeek-V4 drafts only"
    if draft.kind == "dflash2":
        yield "kind", "it has no DFlash2 drafts"
    if can.markov == "required" and not draft.markov_rank:
        yield "markov_rank", "it has no drafts without a Markov head"
    if can.anchor == "first" and draft.sample_from_anchor != (draft.kind == "dspark"):
        anchor = "drafts from the anchor on" if draft.sample_from_anchor else "is bonus-anchor"
        yield "sample_from_anchor", f"it cannot say that the draft {anchor}"
    if can.confidence == "required" and not draft.has_confidence_head:
        yield "has_confidence_head", "it has no drafts without a confidence head"
    if can.tables == "required" and not draft.has_token_embd:
        yield "shared_tensors", "it needs embeddings in the file (--shared-tensors include)"
    if not can.causal and draft.causal:
        yield "causal", "it has no drafts whose block is causal"
    if can.taps is not None and len(draft.target_layers) > can.taps:
        yield "target_layers", f"it takes at most {can.taps} target layers"
    if layout.taps == "outputs" and 0 in draft.target_layers:
        yield "target_layers", "it counts the outputs of layers, and the input of layer 0 is none"
    for feature, where, what in _beyond(draft):
        if feature not in can.holds and can.backbone != "stages":
            yield where, f"it has no {what}"
    held = {
        EMBEDDINGS: draft.has_token_embd,
        HEAD: draft.has_output,
        "d2t": draft.draft_vocab_size != draft.vocab_size,
        "blk.0.attn_sinks.weight": draft.has_sinks and not draft.deepseek4,
    }
    for name, there in held.items():
        if there and dialect_name(layout.name, name, draft.n_layer) is None:
            yield name, f"it has no place for {name}"


def _beyond(draft: Draft) -> Iterator[tuple[str, str, str]]:
    """What a draft has that plain layers have not: feature, field, its name."""
    if draft.deepseek4:
        return
    if draft.sliding_window is not None:
        yield "window", "sliding_window", "windowed layers"
    proportional = (draft.rope.scaling or {}).get("type") == "proportional"
    if draft.rope.dimension_count != draft.head_dim or (draft.rope.scaling and not proportional):
        yield "rotation", "rope", "partial or scaled rotation"
    if draft.shared_kv or proportional or draft.hidden_act != "silu":
        yield "gemma4", "backbone", "layers like Gemma4's"
    for field in ("attention_scale", "value_scale", "embedding_scale", "logit_scale", "logit_softcap"):
        if getattr(draft, field) is not None:
            yield field, field, f"place for {field}"


def in_dialect(dialect: str, draft: Draft, kvs: Iterable[KV]) -> list[KV]:
    """``kvs``, all keys of a file in mainline's words, in those of ``dialect``; ``draft`` has to be one it can hold."""
    layout = layout_named(dialect)
    if layout.is_mainline:
        return list(kvs)
    found = [kv for mainline in kvs for kv in _in_layout(layout, mainline)]
    for extra in layout.write:
        value = getattr(draft, extra.field, None) if extra.field else extra.value
        if extra.field == "tap_width":
            value = len(draft.target_layers) * draft.hidden_size
        found.append(KV(extra.key, extra.type, value))
    return list({kv.key: kv for kv in found}.values())


def _in_layout(layout: Layout, kv: KV) -> Iterator[KV]:
    """``kv`` as it stands in a file of ``layout``; nothing where that has no word for it."""
    if kv.key == ARCHITECTURE:
        yield string(ARCHITECTURE, layout.architectures[0])
        return
    if OWN.fullmatch(kv.key):
        yield kv
        return
    if kv.key.startswith("tokenizer.") and kv.key != MASK and layout.expresses.vocabulary == "none":
        return
    if kv.key in layout.omits:
        return
    name = dialect_key(layout, kv.key)
    if kv.key.startswith(MAINLINE) and not any(fnmatchcase(name, pattern) for pattern in layout.expresses.keys):
        return
    if kv.key == TAPS and layout.taps == "outputs":
        yield array(name, layout.tap_type, [value - 1 for value in kv.value])
    else:
        yield replace(kv, key=name)
