"""The added tokens of a tokenizer: which there are, under which ids, and which are special.

Three places declare them. tokenizer.json lists them (added_tokens.json, where there is none),
``added_tokens_decoder`` in tokenizer_config.json overrides their flags and may add more, and every token
that the config names for a role (bos_token, ..., additional_special_tokens) is special. New ones take the next
free id: so the tokenizers and transformers libraries number them, whatever id the file states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, warning
from dspark_convert.tokenizer.files import TokenizerFiles
from dspark_convert.words import shown

#: roles in the order in which transformers adds tokens that the vocabulary lacks
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True)
class AddedToken:
    """``normalized``: the tokenizer looks for it after normalising the text, not before."""

    id: int
    content: str
    special: bool
    normalized: bool


def role_token(settings: Mapping[str, Any], role: str) -> str | None:
    """The token that tokenizer_config.json names for a role such as ``bos``."""
    return _content(settings.get(f"{role}_token"))


def collect_added(
    files: TokenizerFiles, vocab: Mapping[str, int], vocab_size: int
) -> tuple[list[AddedToken], list[Finding]]:
    """All added tokens, without duplicates, and what was odd about them.

    Raises InputError if a declaration is malformed or states an id that is no number.
    """
    findings: list[Finding] = []
    added: dict[str, AddedToken] = {}
    moved: list[tuple[str, int, int]] = []
    # With gaps in the vocabulary the libraries' counting would run into used ids: trust the file. So does
    # transformers where it reads no tokenizer.json.
    top = max(vocab.values())
    dense = top + 1 == len(vocab) and bool(files.tokenizer)
    for stated, content, special, normalized in _declared(files):
        if content in added:
            added[content] = replace(added[content], special=special, normalized=normalized)
            continue
        token_id = vocab.get(content, top + 1 if dense else stated)
        if token_id != stated:
            moved.append((content, stated, token_id))
        added[content] = AddedToken(token_id, content, special, normalized)
        top = max(top, token_id)
    if moved:
        findings.append(_moved(moved))
    for content in _named(files.settings):
        if content in added:
            added[content] = replace(added[content], special=True)
        elif content in vocab:
            added[content] = AddedToken(vocab[content], content, special=True, normalized=False)
        else:
            fits = top + 1 < vocab_size
            outcome = f"it gets id {top + 1}, as in transformers" if fits else "it is left out"
            message = f"tokenizer_config.json names {content!r}, which is not in the vocabulary; {outcome}."
            findings.append(warning("tokenizer-unknown-special", "tokenizer_config.json", message))
            if fits:
                top += 1
                added[content] = AddedToken(top, content, special=True, normalized=False)
    return list(added.values()), findings


def _moved(moved: list[tuple[str, int, int]]) -> Finding:
    content, stated, token_id = moved[0]
    others = f" and {len(moved) - 1} more like it" if len(moved) > 1 else ""
    message = (
        f"added token {content!r} states id {stated}, but the tokenizers library gives it {token_id}{others};"
        " the library's ids are written, since the model was run with them."
    )
    return warning("tokenizer-added-id", "tokenizer.json", message, "number the added tokens without gaps")


def _declared(files: TokenizerFiles) -> Iterator[tuple[int, str, bool, bool]]:
    """Id, content, special, normalized of each declaration, tokenizer.json first."""
    listed = files.tokenizer.get("added_tokens") or []
    if not isinstance(listed, list):
        raise InputError(f"{files.tokenizer_path}: added_tokens is no list.")
    for entry in listed:
        token_id = entry.get("id") if isinstance(entry, dict) else None
        yield _declaration(entry, token_id, str(files.tokenizer_path))
    if not files.tokenizer:
        where = str(files.directory / "added_tokens.json")
        for content, token_id in files.added_tokens.items():
            yield _declaration({"content": content, "normalized": False}, token_id, where)
    where = str(files.directory / "tokenizer_config.json")
    table = files.settings.get("added_tokens_decoder") or {}
    if not isinstance(table, dict) or not all(key.isdecimal() for key in table):
        raise InputError(f"{where}: added_tokens_decoder should map token ids to tokens.")
    for key in sorted(table, key=int):
        yield _declaration(table[key], int(key), where)


def _declaration(entry: Any, token_id: Any, where: str) -> tuple[int, str, bool, bool]:
    content = _content(entry) if isinstance(entry, dict) else None
    if not content or type(token_id) is not int or token_id < 0:
        raise InputError(f"{where} declares an added token without text or id: {shown(entry)}.")
    special = entry.get("special") is True
    return token_id, content, special, bool(entry.get("normalized", not special))


def _named(settings: Mapping[str, Any]) -> Iterator[str]:
    entries = [settings.get(f"{role}_token") for role in ROLES]
    for field in ("additional_special_tokens", "extra_special_tokens"):
        more = settings.get(field)
        entries.extend(more.values() if isinstance(more, dict) else more if isinstance(more, list) else ())
    for entry in entries:
        if content := _content(entry):
            yield content


def _content(entry: Any) -> str | None:
    if isinstance(entry, dict):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else None
