"""Does the file's metadata say what the checkpoint says? Rules for what numbers show badly or not at all.

A wrong epsilon moves the logits by less than the noise of every type but F32; a context length moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.stated_layers import Row, layer_keys, layer_rows, odd_lengths, one_meaning, single
from dspark_convert.runtime.stated_stages import PER_LAYER, STAGE_KEYS, UNREAD, one_of_all, stage_rows

if TYPE_CHECKING:
    from dspark_convert.reference.facts import Facts

#: keys that every draft may have; any other changes what is computed
COMMON = frozenset(
    "attention.causal attention.head_count attention.head_count_kv attention.key_length"
    " attention.layer_norm_rms_epsilon attention.sliding_window attention.value_length block_count block_size"
    " context_length embedding_length has_confidence_head hidden_activation rope.dimension_count"
    " rope.dimension_sections rope.freq_base rope.scaling.type sample_from_anchor target_layers vocab_size".split()
)
#: sizes that a file may also give layer by layer
SIZES = frozenset(("attention.head_count", "attention.head_count_kv", "feed_forward_length"))

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
    if any(view.window for view in facts.views):
        same += ", windows"
    if facts.dflash2 is not None:
        same += ", convolutions, selector"
    return Check("metadata", "pass", f"{same} are the checkpoint's")


def _compare(file: GGUFFile, facts: Facts) -> Iterator[str]:
    """One sentence for each key that says something else than the checkpoint."""
    yield from _anchor(file, facts)
    for name, absent, said in _rows(file, facts):
        key = f"dflash.{name}"
        stated = _plain(file.metadata.get(key, absent))
        if name in PER_LAYER | SIZES:
            stated = one_of_all(stated, facts.n_layer)
        found = one_meaning(name, stated, absent)
        if found != said or isinstance(found, bool) != isinstance(said, bool):
            yield f"{key} is {_show(stated)}, but the checkpoint has {_show(said)}"
    mask = file.metadata.get("tokenizer.ggml.mask_token_id")
    if mask != facts.mask_token_id:
        yield f"tokenizer.ggml.mask_token_id is {_show(mask)}, but the checkpoint has {facts.mask_token_id}"
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, Sequence) else 0
    if count != facts.vocab_size:
        yield f"tokenizer.ggml.tokens has {count:,} entries, but the checkpoint {facts.vocab_size:,}"
    if facts.rotation and facts.rotation.yarn:
        yield from odd_lengths(file, facts.rotation.yarn)
    yield from _sections(file, facts)
    known = COMMON | (layer_keys(facts) if facts.stages is None else STAGE_KEYS)
    for key in file.metadata:
        name = key.removeprefix("dflash.")
        if key != name and name not in known and not (facts.stages and name.startswith(UNREAD)):
            yield f"{key} is {_show(_plain(file.metadata[key]))}, but the checkpoint has nothing of the kind"


def _rows(file: GGUFFile, facts: Facts) -> list[Row]:
    rows = [*_common(facts), *(layer_rows(facts) if facts.stages is None else stage_rows(facts, facts.stages))]
    left_out = set()
    if not _has_markov(file):
        # llama.cpp reads from slot 1 then, whatever the flag says, and has no confidence
        left_out |= {"sample_from_anchor", "has_confidence_head"}
    if len({view.causal for view in facts.views}) > 1:
        left_out.add("attention.causal")  # one flag for all layers: either is wrong for some
    return [row for row in rows if row[0] not in left_out]


def _anchor(file: GGUFFile, facts: Facts) -> Iterator[str]:
    if facts.sample_from_anchor and not _has_markov(file):
        yield (
            "the file has no Markov head, without which llama.cpp reads from the first mask on, but the checkpoint is"
            " read from the anchor on"
        )


def _has_markov(file: GGUFFile) -> bool:
    return file.tensor("markov_w1.weight") is not None


def _sections(file: GGUFFile, facts: Facts) -> Iterator[str]:
    """Sections of M-RoPE, which llama.cpp turns the NeoX way and without the divisors of ``rope_freqs.weight``."""
    sections = _plain(file.metadata.get("dflash.rope.dimension_sections", []))
    pairs = (facts.rotation.dims if facts.rotation else facts.head_dim) // 2
    one_axis = [0] * 4 if facts.stages or facts.gemma4 else [pairs, 0, 0, 0]
    if not (isinstance(sections, list) and (not any(sections) or sections == one_axis[: len(sections)])):
        yield f"dflash.rope.dimension_sections is {sections}, but a draft rotates all {pairs} pairs as one"


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
        ("attention.layer_norm_rms_epsilon", None, single(facts.rms_norm_eps)),
        ("rope.freq_base", 10000.0, single(facts.rope_theta)),
        ("vocab_size", facts.vocab_size, facts.vocab_size),
    ]


def _compare_repeated(file: GGUFFile, facts: Facts) -> Iterator[str]:
    for key, name in REPEATED.items():
        said = _plain(getattr(facts, name))
        if key in file.metadata and (found := _plain(file.metadata[key])) != said:
            if key == "dspark.markov_rank" and not said:
                continue  # the head of zeros of a draft that has none
            yield f"{key} is {_show(found)}, but the checkpoint has {_show(said)}"
    views, own = [view.causal for view in facts.views], facts.gemma4
    right = {
        "dspark.rope_style": "norm" if facts.stages else "neox",
        "dspark.causal_pattern": views or [False] * facts.n_layer,
        "dspark.rope_rotated": 2 * own.turning_pairs if own else facts.head_dim,
    }
    for key, said in right.items():
        if (found := _plain(file.metadata.get(key, said))) != said:
            yield f"{key} is {_show(found)}, but what the checkpoint needs is {_show(said)}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _show(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.9g}" if isinstance(value, float) else str(value)
