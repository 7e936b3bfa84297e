"""All keys of a draft in a layout's words: those that a conversion writes, and those that only ported drafts have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dspark_convert.draft import Draft
from dspark_convert.foreign.keys import in_dialect
from dspark_convert.ggufio.types import KV, ValueType, array, string
from dspark_convert.metadata import mask, runtime

MAINLINE = "dflash."


def keys_for(dialect: str, draft: Draft) -> list[KV]:
    """What a runtime of layout ``dialect`` reads of ``draft``, with the mask token and the architecture."""
    kvs = [string("general.architecture", "dflash"), *runtime(draft, mrope=False), *_attention(draft), mask(draft)]
    return in_dialect(dialect, draft, kvs)


def _attention(draft: Draft) -> Iterator[KV]:
    """What no draft that this tool converts needs to say, and ported ones do."""
    if draft.causal:
        yield KV(f"{MAINLINE}attention.causal", ValueType.BOOL, True)
    if draft.deepseek4:
        return
    if draft.sliding_window is not None:
        yield KV(f"{MAINLINE}attention.sliding_window", ValueType.UINT32, draft.sliding_window)
    if draft.sliding_window_pattern:
        pattern = list(draft.sliding_window_pattern)
        yield array(f"{MAINLINE}attention.sliding_window_pattern", ValueType.BOOL, pattern)
    if draft.rope.dimension_count != draft.head_dim:
        yield KV(f"{MAINLINE}rope.dimension_count", ValueType.UINT32, draft.rope.dimension_count)
    for name, value in (draft.rope.scaling or {}).items():
        yield KV(f"{MAINLINE}rope.scaling.{name}", _type_of(value), value)


def _type_of(value: Any) -> ValueType:
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, str):
        return ValueType.STRING
    return ValueType.UINT32 if isinstance(value, int) else ValueType.FLOAT32
