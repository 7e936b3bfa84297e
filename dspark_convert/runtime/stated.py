"""Does the file's metadata say what the checkpoint says? Rules for what numbers show badly or not at all.

A wrong epsilon moves the logits by less than the noise of every type but F32; a context length moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.stated_stages import PER_LAYER, STAGE_KEYS, UNREAD, Row, one_of_all, stage_rows

if TYPE_CHECKING:
    from dspark_convert.reference.facts import Facts

#: keys that every draft may have; any other changes what is computed
COMMON = frozenset(
    "attention.causal attention.head_count attention.head_count_kv attention.key_length"
    " attention.layer_norm_rms_epsilon attention.sliding_window attention.value_length block_count block_size"
    " context_length embedding_length has_confidence_head hidden_activation rope.dimension_count"
    " rope.dimension_sections rope.freq_base rope.scaling.type sample_from_anchor target_layers vocab_size".split()
)
#: and those of a plain Qwen3 draft
KNOWN = COMMON | {"feed_forward_length"}

#: our own keys, which repeat the runtime's -> the fact
REPEATED = {
    "dspark.block_size": "block_size",
    "dspark.target_layers": "taps",
    "dspark.mask_token_id": "mask_token_id",
    "dspark.sample_from_anchor": "sample_from_anchor",
    "dspark.markov_rank": "markov_rank",
    "dspark.has_confidence_head": "has_confidence_head",
}


def check_stated(draft: GGUFFile, facts: Facts) -> Check:
    """The check "metadata": the file's keys against the checkpoint's facts (its tokens: ``precheck``)."""
    if draft.metadata.get("general.architecture") != "dflash":
        return Check("metadata", "skip", "only the dflash layout is compared")
    problems = [*_compare(draft, facts), *_compare_repeated(draft, facts)]
    if problems:
        return Check("metadata", "fail", "; ".join(problems))
    same = "block, anchor rule, taps, mask token, heads, epsilon, RoPE, context and vocabulary size"
    if facts.stages is not None:
        same += ", experts, window and hyper-connections"
    return Check("metadata", "pass", f"{same} are the checkpoint's")


def _compare(file: GGUFFile, facts: Facts) -> Iterator[str]:
    """One sentence for each key that says something else than the checkpoint."""
    rows = [*_common(facts), *(_layers(facts) if facts.stages is None else stage_rows(facts, facts.stages))]
    if not facts.markov_rank and not facts.sample_from_anchor:
        # without a Markov head llama.cpp reads from slot 1, whatever the flag says
        rows = [row for row in rows if row[0] not in ("sample_from_anchor", "has_confidence_head")]
    for name, absent, said in rows:
        key = f"dflash.{name}"
        found = _plain(file.metadata.get(key, absent))
        if name in PER_LAYER:
            found = one_of_all(found, facts.n_layer)
        if found != said or isinstance(found, bool) != isinstance(said, bool):
            yield f"{key} is {_show(found)}, but the checkpoint has {_show(said)}"
    mask = file.metadata.get("tokenizer.ggml.mask_token_id")
    if mask != facts.mask_token_id:
        yield f"tokenizer.ggml.mask_token_id is {_show(mask)}, but the checkpoint has {facts.mask_token_id}"
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, Sequence) else 0
    if count != facts.vocab_size:
        yield f"tokenizer.ggml.tokens has {count:,} entries, but the checkpoint {facts.vocab_size:,}"
    sections = _plain(file.metadata.get("dflash.rope.dimension_sections", []))
    pairs = facts.head_dim // 2
    one_axis = [0] * 4 if facts.stages else [pairs, 0, 0, 0]  # llama.cpp turns sections the NeoX way
    if not (isinstance(sections, list) and (not any(sections) or sections == one_axis[: len(sections)])):
        yield f"dflash.rope.dimension_sections is {sections}, but a draft rotates all {pairs} pairs as one"
    known = KNOWN if facts.stages is None else COMMON | STAGE_KEYS
    for key in file.metadata:
        name = key.removeprefix("dflash.")
        if key != name and name not in known and not (facts.stages and name.startswith(UNREAD)):
            yield f"{key} is {_show(_plain(file.metadata[key]))}, but the checkpoint has nothing of the kind"


def _common(facts: Facts) -> list[Row]:
    return [
        ("block_size", None, facts.block_size),
        ("sample_from_anchor", True, facts.sample_from_anchor),
        ("target_layers", None, list(facts.taps)),
        ("has_confidence_head", True, facts.has_confidence_head),
        ("attention.causal", False, facts.causal),
        ("block_count", None, facts.n_layer),
        ("embedding_length", None, facts.hidden_size),
        ("context_length", None, facts.context_length),
        ("attention.head_count", None, facts.n_head),
        ("attention.head_count_kv", facts.n_head, facts.n_head_kv),
        ("attention.key_length", facts.hidden_size // facts.n_head, facts.head_dim),
        ("attention.value_length", facts.hidden_size // facts.n_head, facts.head_dim),
        ("attention.layer_norm_rms_epsilon", None, float(np.float32(facts.rms_norm_eps))),
        ("rope.freq_base", 10000.0, float(np.float32(facts.rope_theta))),
        ("hidden_activation", "silu", "silu"),
        ("vocab_size", facts.vocab_size, facts.vocab_size),
    ]


def _layers(facts: Facts) -> list[Row]:
    """What layers like Qwen3's have."""
    return [
        ("feed_forward_length", None, facts.intermediate_size),
        ("rope.dimension_count", facts.head_dim, facts.head_dim),
        ("rope.scaling.type", "none", "none"),
        ("attention.sliding_window", 0, 0),
    ]


def _compare_repeated(file: GGUFFile, facts: Facts) -> Iterator[str]:
    for key, name in REPEATED.items():
        said = _plain(getattr(facts, name))
        if key in file.metadata and (found := _plain(file.metadata[key])) != said:
            if key == "dspark.markov_rank" and not said:
                continue  # the head of zeros of a draft that has none
            yield f"{key} is {_show(found)}, but the checkpoint has {_show(said)}"
    right, pairs = ("neox", "NeoX pairs") if facts.stages is None else ("norm", "neighbouring pairs")
    style = file.metadata.get("dspark.rope_style", right)
    if style != right:
        yield f"dspark.rope_style is {_show(style)}, but the checkpoint rotates {pairs}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _show(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.9g}" if isinstance(value, float) else str(value)
