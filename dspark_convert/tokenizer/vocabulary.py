"""Token texts and types by id, from the vocabulary and the added tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn, cast

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, info
from dspark_convert.tokenizer.added import AddedToken, collect_added
from dspark_convert.tokenizer.bytelevel import spelled_out
from dspark_convert.tokenizer.files import TAKE_GGUF, TokenizerFiles


class TokenType(IntEnum):
    """Values of ``tokenizer.ggml.token_type`` (``llama_token_type`` in llama.h)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


#: added tokens that models forgot to mark as special; llama.cpp's converter knows the same ones
_FORGOTTEN = frozenset(("<pad>", "<mask>", "<2mass>", "[@BOS@]"))
_FORGOTTEN_BRACKETS = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))


@dataclass(frozen=True)
class Vocabulary:
    """``texts`` and ``types`` have one item an id, padding included.

    ``ids`` has the ids of all but the padding, by text as the files spell it; ``added`` are those of
    the added tokens.
    """

    texts: list[str]
    types: list[int]
    ids: Mapping[str, int]
    findings: tuple[Finding, ...]
    added: frozenset[int] = frozenset()


def read_vocabulary(files: TokenizerFiles, vocab_size: int) -> Vocabulary:
    """The ``vocab_size`` tokens of a byte-level BPE; raises InputError as ``lay_out`` does."""
    return lay_out(files, bpe_vocabulary(files), {}, vocab_size, spelled_out)


def lay_out(
    files: TokenizerFiles,
    vocab: dict[str, int],
    kinds: Mapping[int, TokenType],
    vocab_size: int,
    spell: Callable[[str], str],
) -> Vocabulary:
    """Texts and types of a model's ``vocab`` and the added tokens; ids that have none become ``[PADn]``.

    ``kinds``: the types of those in ``vocab`` that are not NORMAL; ``spell``: the text that an added
    token stands for. Raises InputError for ids that stand twice or do not fit ``vocab_size``, and for
    two ids with the same text (llama.cpp aborts on those).
    """
    path = files.vocabulary_path
    added, findings = collect_added(files, vocab, vocab_size)
    ids = vocab
    if not files.tokenizer:  # an older file's pieces, which added tokens may take the place of
        taken = {token.id: token.content for token in added}
        ids = {text: i for text, i in ids.items() if taken.get(i, text) == text}
    ids |= {token.content: token.id for token in added}  # in place: a copy would take 10 MB
    highest = highest_id(ids, vocab_size, path)
    slots: list[str | None] = [None] * vocab_size
    if list(ids.values()) == list(range(len(ids))):  # as the tokenizers library writes them
        slots[: len(ids)] = ids
    else:
        for text, token_id in ids.items():
            slots[token_id] = text
    if vocab_size - slots.count(None) != len(ids):
        _refuse_shared_id(ids, path)
    types = [int(TokenType.NORMAL)] * vocab_size
    for token_id, kind in kinds.items():
        types[token_id] = int(kind)
    for token in added:
        slots[token.id], types[token.id] = _added_entry(token, spell)
    empty = _empty(slots)
    for i in empty:
        slots[i], types[i] = f"[PAD{i}]", int(TokenType.UNUSED)
    texts = cast("list[str]", slots)
    _check_texts(texts, {*empty, *(token.id for token in added)}, ids, path)
    if empty:
        findings.append(_padding(empty, highest, vocab_size))
    return Vocabulary(texts, types, ids, tuple(findings), frozenset(token.id for token in added))


def highest_id(ids: Mapping[str, int], vocab_size: int, path: Path) -> int:
    """The highest of ``ids``; raises InputError if it does not fit ``vocab_size``."""
    highest = max(ids.values())
    if highest >= vocab_size:
        raise InputError(
            f"{path} has token ids up to {highest}, but the model's vocab_size is {vocab_size}: the tokenizer and"
            " config.json are not of the same model."
        )
    return highest


def bpe_model(files: TokenizerFiles) -> Mapping[str, Any]:
    """The ``model`` of tokenizer.json, a BPE; raises InputError if it joins pieces otherwise than llama.cpp."""
    model = files.model
    for field in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(field):
            raise InputError(
                f"{files.tokenizer_path} has {field} {model[field]!r}, which llama.cpp's BPE does not know:"
                f" {TAKE_GGUF}."
            )
    return model


def bpe_vocabulary(files: TokenizerFiles) -> dict[str, int]:
    """Ids by text of a BPE; raises InputError if they are no numbers."""
    path = files.tokenizer_path
    vocab = bpe_model(files).get("vocab")
    if not isinstance(vocab, dict) or not vocab:
        raise InputError(f"{path} has no vocabulary (model.vocab should map tokens to ids).")
    if set(map(type, vocab.values())) != {int} or min(vocab.values()) < 0:
        text, token_id = next(item for item in vocab.items() if type(item[1]) is not int or item[1] < 0)
        raise InputError(f"{path} gives token {text!r} the id {token_id!r}, which is no token id.")
    return vocab


def _refuse_shared_id(ids: Mapping[str, int], path: Path) -> NoReturn:
    first: dict[int, str] = {}
    for text, token_id in ids.items():
        if first.setdefault(token_id, text) != text:
            raise InputError(f"{path} gives id {token_id} to two tokens, {first[token_id]!r} and {text!r}.")
    raise AssertionError


def _empty(slots: list[str | None]) -> list[int]:
    empty: list[int] = []
    for _ in range(slots.count(None)):
        empty.append(slots.index(None, empty[-1] + 1 if empty else 0))
    return empty


def _added_entry(token: AddedToken, spell: Callable[[str], str]) -> tuple[str, int]:
    """Text and type of an added token, as llama.cpp looks for it in the text: after normalisation."""
    text = token.content if token.normalized else spell(token.content)
    forgotten = text in _FORGOTTEN or any(text.startswith(a) and text.endswith(b) for a, b in _FORGOTTEN_BRACKETS)
    if token.special or forgotten:
        return text, int(TokenType.CONTROL)
    return text.replace("\u2581", " "), int(TokenType.USER_DEFINED)


def _check_texts(texts: list[str], replaced: set[int], ids: Mapping[str, int], path: Path) -> None:
    """Raise InputError if two are the same or one is no text; all but those ``replaced`` are keys of ``ids``."""
    new = {texts[i]: i for i in replaced}
    if len(new) != len(replaced) or any(ids.get(text, i) not in replaced for text, i in new.items()):
        first: dict[str, int] = {}
        for token_id, text in enumerate(texts):
            if text in first:
                raise InputError(
                    f"{path}: ids {first[text]} and {token_id} both stand for {text!r}; llama.cpp needs a text a token."
                )
            first[text] = token_id
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        broken = next(i for i, text in enumerate(texts) if any("\ud800" <= c <= "\udfff" for c in text))
        raise InputError(f"{path}: token {broken} ({texts[broken]!r}) holds half a surrogate pair.") from None


def _padding(empty: list[int], highest: int, vocab_size: int) -> Finding:
    holes = sum(i < highest for i in empty)
    between = f", {holes} of them below the highest used id {highest}" if holes else ""
    message = f"{len(empty)} of {vocab_size} ids have no token{between}; they become [PADn] of type UNUSED."
    return info("tokenizer-padding", "tokenizer.ggml.tokens", message)
