"""Two Drafts field by field: do both mean the same draft?"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from dspark_convert.document import plain
from dspark_convert.draft import Draft

#: what a person calls each field; the others go by their name
TITLES = {
    "sample_from_anchor": "first draft at the anchor",
    "target_layers": "taps",
    "mask_token_id": "mask token",
    "markov_head_type": "Markov head",
    "markov_rank": "Markov rank",
    "has_confidence_head": "confidence head",
    "vocab_size": "vocabulary size",
    "draft_vocab_size": "draft vocabulary size",
    "intermediate_size": "feed-forward size",
    "n_layer": "layers",
    "n_head": "heads",
    "n_head_kv": "key/value heads",
    "head_dim": "head dimensions",
    "rms_norm_eps": "RMS norm epsilon",
    "has_token_embd": "embeddings of its own",
    "has_output": "head of its own",
    "has_sinks": "attention sinks",
    "has_mask_row": "mask token's row of its own",
    "causal_pattern": "causal layers",
    "sliding_window_pattern": "windowed layers",
    "hidden_act": "activation",
    "logit_softcap": "cap of the logits",
    "shared_kv": "keys serve as values",
    "rope.style": "RoPE style",
    "rope.dimension_count": "RoPE dimensions",
    "rope.freq_base": "RoPE base",
    "rope.scaling": "RoPE scaling",
}
#: a backbone that no key states, which is no statement
UNSTATED = "unknown"


@dataclass(frozen=True)
class FieldDiff:
    """``field`` is the Draft's attribute ("rope.style" of a part), ``title`` what a person calls it."""

    field: str
    title: str
    a: Any
    b: Any

    def to_json(self) -> dict[str, Any]:
        return {"field": self.field, "a": plain(self.a), "b": plain(self.b)}


def compare_meaning(a: Draft, b: Draft) -> list[FieldDiff]:
    """The fields that differ, in the Draft's order. Numbers are compared as a file holds them, in float32."""
    ours, theirs = dict(_flat(a)), dict(_flat(b))
    found = []
    for name in ours | theirs:
        first, second = ours.get(name), theirs.get(name)
        unstated = name == "backbone" and UNSTATED in (first, second)
        if not unstated and _stored(first) != _stored(second):
            found.append(FieldDiff(name, TITLES.get(name, name.rpartition(".")[2].replace("_", " ")), first, second))
    return found


def _flat(draft: Draft) -> Iterator[tuple[str, Any]]:
    for each in fields(draft):
        value = getattr(draft, each.name)
        if each.name == "origin":
            continue
        if each.name in ("rope", "deepseek4", "dflash2") and value is not None:
            yield from ((f"{each.name}.{part}", inner) for part, inner in asdict(value).items())
        else:
            yield each.name, list(value) if isinstance(value, tuple) else value


def _stored(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stored(inner) for key, inner in value.items()}
    if isinstance(value, float):
        try:
            return struct.pack("<f", value)
        except OverflowError:
            return value
    return value
