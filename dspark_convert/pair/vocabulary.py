"""Do draft and target speak of the same tokens? Compared item by item, stored bytes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.target import Target
from dspark_convert.tokenizer.special import ID_KEYS
from dspark_convert.tokenizer.vocabulary import TokenType
from dspark_convert.words import shown

TOKENS, TYPES, MERGES = (f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "merges"))
TEMPLATE = "tokenizer.chat_template"

#: of tokens that differ, so many are told
TOLD_TOKENS = 4

ANOTHER = "give the target that the draft was trained for"


@dataclass(frozen=True)
class Tokenizer:
    """The ``tokenizer.*`` entries of a model. Lists may be decoded only as they are read; they are
    empty where there is none. ``special``: role ("eos") -> id."""

    model: str | None
    pre: str | None
    tokens: Sequence[Any]
    types: Sequence[Any]
    merges: Sequence[Any]
    special: Mapping[str, int]
    template: str | None = None


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer | None:
    """What a file's metadata, or that of a plan, says; None if it names no tokenizer."""
    if not any(key.startswith("tokenizer.ggml.") for key in metadata):
        return None
    ids = {role: metadata.get(key) for role, key in ID_KEYS.items()}
    return Tokenizer(
        _text(metadata.get("tokenizer.ggml.model")),
        _text(metadata.get("tokenizer.ggml.pre")),
        _items(metadata, TOKENS),
        _items(metadata, TYPES),
        _items(metadata, MERGES),
        {role: value for role, value in ids.items() if type(value) is int},
        _text(metadata.get(TEMPLATE)),
    )


def tokenizer_of_directory(root: Path, vocab_size: int | None) -> Tokenizer | None:
    """That of a Hugging Face directory, as a conversion would write it; None if it cannot be read."""
    from dspark_convert.tokenizer import from_directory
    from dspark_convert.tokenizer.files import READ

    if vocab_size is None or not any((root / name).is_file() for name in READ):
        return None
    for chat_template in (True, False):  # a template that cannot be written is no reason to compare nothing
        try:
            result = from_directory(root, vocab_size, chat_template=chat_template)
        except InputError:
            continue  # a conversion says why
        return tokenizer_of({kv.key: kv.value for kv in result.kvs})
    return None


def tokenizer_of_target(target: Target) -> Tokenizer | None:
    """That of a target; its file stays mapped for as long as the result is held."""
    if not target.is_gguf:
        return tokenizer_of_directory(target.path, target.vocab_size)
    from dspark_convert.ggufio.reader import open_gguf

    return tokenizer_of(open_gguf(target.path).metadata)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _items(metadata: Mapping[str, Any], key: str) -> Sequence[Any]:
    """The list under ``key``; what a stranger's file holds there may also be a number or a text."""
    value = metadata.get(key)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def judge_tokens(own: Tokenizer | None, wanted: Tokenizer | None, target: Target) -> list[Finding]:
    """Tokens, their types, merges and names; two sizes are judged by ``judge.judge_pair``."""
    if wanted is None or not wanted.tokens:
        count = len(own.tokens) if own else 0
        message = f"the target holds no list of tokens to compare the draft's {count:,} with."
        if not target.is_gguf:
            message = f"the tokens of {target.called} cannot be compared: no tokenizer there can be read."
            return [warning("target-tokens-unknown", TOKENS, message, "compare with a GGUF of the target")]
        return [error("target-tokens", TOKENS, message, "give a target with a tokenizer")]
    if own is None or not own.tokens:
        return []
    different = list(_different_tokens(own, wanted))
    return [*different, *_different_types(own, wanted), *(() if different else _different_splitting(own, wanted))]


def _different_tokens(own: Tokenizer, wanted: Tokenizer) -> Iterator[Finding]:
    if own.tokens == wanted.tokens:
        return
    different = [(index, a, b) for index, (a, b) in enumerate(zip(own.tokens, wanted.tokens, strict=False)) if a != b]
    if not different:
        return
    index, a, b = different[0]
    count = f"{len(different):,} tokens differ" if len(different) > 1 else "1 token differs"
    message = f"{count}, the first is {index}: {shown(a)} in the draft, {shown(b)} in the target"
    if len(different) > 1:
        more = ", ".join(f"{index} ({shown(a)}, {shown(b)})" for index, a, b in different[1:TOLD_TOKENS])
        message += f"; then {more}" + (", …" if len(different) > TOLD_TOKENS else "")
    types = wanted.types if len(wanted.types) == len(wanted.tokens) else ()
    if types and all(types[index] == TokenType.UNUSED for index, _, _ in different):
        yield warning("target-padding", TOKENS, f"{message}; the target never writes any of these.")
    else:
        yield error("target-tokens", TOKENS, f"{message}.", ANOTHER)


def _different_types(own: Tokenizer, wanted: Tokenizer) -> Iterator[Finding]:
    """Converters of one model disagree on types, and the draft's own are never read."""
    if own.types == wanted.types:
        return
    count = sum(a != b for a, b in zip_longest(own.types, wanted.types))
    yield info("target-token-types", TYPES, f"{count:,} token types are not the target's, which changes nothing.")


def _different_splitting(own: Tokenizer, wanted: Tokenizer) -> Iterator[Finding]:
    """One list of tokens, but two ways to make them of text: the vocabulary is another model's."""
    if own.model and wanted.model and own.model != wanted.model:
        message = f"the tokenizer is {shown(own.model)}, the target's {shown(wanted.model)}, although the tokens are."
        yield error("target-tokenizer", "tokenizer.ggml.model", message, ANOTHER)
    if own.merges and wanted.merges and own.merges != wanted.merges:
        yield error("target-merges", MERGES, "it is not the target's, although the tokens are.", ANOTHER)
    if own.pre and wanted.pre and own.pre != wanted.pre:
        message = (
            f"the pre-tokenizer is called {shown(own.pre)}, in the target {shown(wanted.pre)}: converters name one"
            " differently, and the draft's is never used."
        )
        yield info("target-pre-tokenizer", "tokenizer.ggml.pre", message)
    if own.template and wanted.template and own.template != wanted.template:
        message = (
            "the chat template is not the target's: llama-server goes by the target's, a program that asks the draft"
            " would write its prompts otherwise."
        )
        yield info("target-chat-template", TEMPLATE, message, "convert again with this target, or --no-chat-template")
