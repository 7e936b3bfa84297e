"""Rules over the vocabulary in a draft file: size, mask token, reduced vocabulary, chat template."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, warning
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.types import KV, GGMLType, ValueType
from dspark_convert.ggufio.values import LazyArray
from dspark_convert.lint.fixes import AGAIN
from dspark_convert.tokenizer import template
from dspark_convert.tokenizer.from_gguf import NO_TOKENIZER
from dspark_convert.tokenizer.pre import load_table
from dspark_convert.tokenizer.special import ID_KEYS

#: byte-level BPEs, which llama.cpp refuses to load without merges, but for one pre-tokenizer (src/llama-vocab.cpp)
BYTE_LEVEL, WITHOUT_MERGES = ("gpt2", "hybriddna", "whitespace"), "kimi-k2"
#: tokenizers that choose among pieces by their scores: SentencePiece's BPE and unigrams, and PLaMo's
SCORED = ("llama", "t5", "plamo2")

FROM_TARGET = "convert again with the target's tokenizer (--target-model-dir or --target-gguf)"


def check_vocabulary(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    yield from _tokens(file, draft, tokens)
    yield from _mask(file, draft)
    yield from _reduced(file, draft)
    yield from template.judge(_templates(file))


def _templates(file: GGUFFile) -> Iterator[KV]:
    for entry in file.metadata.entries.values():
        if entry.key.startswith(template.KEY) and entry.type is ValueType.STRING:
            yield file.kv(entry.key)


def _tokens(file: GGUFFile, draft: Draft, tokens: object) -> Iterator[Finding]:
    model = file.metadata.get("tokenizer.ggml.model")
    if not isinstance(model, str) or not isinstance(tokens, LazyArray) or not len(tokens):
        message = "the file holds no vocabulary, without which llama.cpp cannot know the mask token."
        if model in NO_TOKENIZER:
            message = f"the tokenizer is {model!r}, with which llama.cpp has no mask token and cannot make a block."
        yield error("vocabulary-missing", "tokenizer.ggml.tokens", message, FROM_TARGET)
        return
    if len(tokens) != draft.vocab_size:
        message = f"the vocabulary has {len(tokens):,} tokens, but the tensors have {draft.vocab_size:,} rows."
        yield error("vocabulary-size", "tokenizer.ggml.tokens", message, FROM_TARGET)
    for key in ("tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
        other = file.metadata.get(key)
        if other is not None and (not isinstance(other, LazyArray) or len(other) != len(tokens)):
            count = f"{len(other):,} entries" if isinstance(other, LazyArray) else "no list"
            message = f"it has {count} for {len(tokens):,} tokens; llama.cpp reads past its end."
            yield error("vocabulary-lists", key, message, FROM_TARGET)
    if found := _twice(tokens):
        message = f"tokens {found[0]} and {found[1]} are both {tokens[found[0]]!r}; llama.cpp aborts on it."
        yield error("token-duplicate", "tokenizer.ggml.tokens", message, FROM_TARGET)
    pre = file.metadata.get("tokenizer.ggml.pre")
    merged = model == "gemma4" or (model in BYTE_LEVEL and pre != WITHOUT_MERGES)
    if merged and "tokenizer.ggml.merges" not in file.metadata:
        message = "the list of merges is not there, without which llama.cpp refuses the file."
        yield error("merges-missing", "tokenizer.ggml.merges", message, FROM_TARGET)
    if model in SCORED and "tokenizer.ggml.scores" not in file.metadata:
        message = (
            "the list of scores is not there; llama.cpp takes all for 0 and splits text otherwise than the target."
        )
        yield warning("scores-missing", "tokenizer.ggml.scores", message, FROM_TARGET)
    if model == "gpt2":
        yield from _pre_tokenizer(pre)


def _pre_tokenizer(pre: object) -> Iterator[Finding]:
    if pre is None:
        message = "the pre-tokenizer is not named, so llama.cpp splits text by a default that hardly fits."
        yield warning("pre-tokenizer-missing", "tokenizer.ggml.pre", message, FROM_TARGET)
    elif not isinstance(pre, str) or pre not in load_table().llama_cpp_names:
        message = f"the pre-tokenizer is {pre!r}; llama.cpp refuses a file that names one which it does not know."
        yield warning("pre-tokenizer-unknown", "tokenizer.ggml.pre", message, FROM_TARGET)


def _twice(tokens: LazyArray) -> tuple[int, int] | None:
    """The first two places of a text that stands there twice; llama.cpp gives empty ones names of their own."""
    if tokens.item_type is not ValueType.STRING:
        return None
    # The texts themselves would take several times the file's size, and most files have no two that are equal.
    hashes = list(map(hash, filter(None, tokens.encoded_strings())))
    if len(set(hashes)) == len(hashes):
        return None
    same = {a for a, b in pairwise(sorted(hashes)) if a == b}
    places: dict[bytes, int] = {}
    for place, token in enumerate(tokens.encoded_strings()):
        if hash(token) in same and (first := places.setdefault(token, place)) != place:
            return first, place
    return None


def _mask(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    mask, size = draft.mask_token_id, draft.vocab_size
    if size and mask >= size:
        message = f"the mask token is {mask}, but the vocabulary ends at {size - 1}; llama.cpp aborts on it."
        yield error("mask-out-of-range", "tokenizer.ggml.mask_token_id", message, "give the right mask token")
    for role, key in ID_KEYS.items():
        # A mask that means something else too was chosen by accident.
        if file.metadata.get(key) == mask:
            message = f"the mask token {mask} is also the {role.upper()} token ({key})."
            yield warning(
                "mask-is-special", "tokenizer.ggml.mask_token_id", message, "check it with the draft's author"
            )


def _reduced(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    """d2t maps each token of a reduced draft vocabulary to the target's id."""
    tensor = file.tensor("d2t")
    if tensor is None:
        return
    if draft.deepseek4 is not None:
        message = "llama.cpp maps no reduced vocabulary behind DeepSeek-V4 stages: it would draft the wrong tokens."
        yield error("d2t-stages", "d2t", message, "convert a checkpoint that drafts all tokens")
    if tensor.type is not GGMLType.I64:
        yield error("d2t-type", "d2t", f"the type is {tensor.type_name}; llama.cpp asserts I64.", FROM_TARGET)
        return
    if not file.holds(tensor):
        return  # told as truncated
    order = "<" if file.byte_order == "little" else ">"
    import numpy as np

    ids = np.frombuffer(file.data(tensor), f"{order}i8")
    outside = np.flatnonzero((ids < 0) | (ids >= draft.vocab_size))
    if outside.size:
        first = int(outside[0])
        message = (
            f"{outside.size:,} ids are outside the vocabulary of {draft.vocab_size:,};"
            f" the first is {ids[first]} at {first}."
        )
        yield error("d2t-range", "d2t", message, AGAIN)
    elif np.unique(ids).size != ids.size:
        message = f"{ids.size - np.unique(ids).size:,} of {ids.size:,} draft tokens map to an id that is taken already."
        yield error("d2t-duplicate", "d2t", message, AGAIN)
