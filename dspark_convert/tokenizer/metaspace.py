"""What tokenizer.json does to a text before a model in SentencePiece's manner: Llama 2, Gemma, T5."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.tokenizer.files import TAKE_GGUF, TokenizerFiles
from dspark_convert.tokenizer.pieces import SPACE, Preparation
from dspark_convert.tokenizer.pre import flatten, printable, shown_step

#: normalizers that llama.cpp does not have: what they do is told, and left out
_OTHERS = frozenset(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"))

#: the spellings of runs of spaces that become one
_JOINED = [({"Regex": " {2,}"}, content) for content in (" ", SPACE)]


@dataclass
class _Found:
    space_prefix: bool = False
    merge_spaces: bool = False
    charsmap: bytes = b""
    others: tuple[str, ...] = ()


def writes_spaces(files: TokenizerFiles) -> bool:
    """Whether spaces become U+2581, which tells SentencePiece's manner from a byte-level BPE."""
    return any(
        _is_replace(step) or step.get("type") == "Metaspace"
        for field, name in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"))
        for step in flatten(files.tokenizer.get(field), name)
    )


def read_preparation(files: TokenizerFiles) -> Preparation:
    """The steps before the model, in SentencePiece's words.

    Raises InputError that shows the steps if one of them is none that SentencePiece has.
    """
    normalizers = list(flatten(files.tokenizer.get("normalizer"), "normalizers"))
    splits = list(flatten(files.tokenizer.get("pre_tokenizer"), "pretokenizers"))
    found = _Found()
    if not all([_normalizes(step, found, files) for step in normalizers] + [_splits(step, found) for step in splits]):
        seen = printable(", then ".join(_brief(step) for step in (*normalizers, *splits)))
        raise InputError(
            f"{files.tokenizer_path} prepares text in a way that llama.cpp's SentencePiece does not know (seen:"
            f" {seen}); {TAKE_GGUF}."
        )
    return Preparation(found.space_prefix, found.merge_spaces, found.charsmap, found.others)


def _normalizes(step: Mapping[str, Any], found: _Found, files: TokenizerFiles) -> bool:
    kind = str(step.get("type"))
    if kind == "Prepend" and step.get("prepend") == SPACE:
        found.space_prefix = True
    elif kind == "Precompiled":
        found.charsmap = _charsmap(step.get("precompiled_charsmap"), files)
    elif kind == "Strip" or (step.get("pattern"), step.get("content")) in _JOINED:
        found.merge_spaces = True
    elif kind in _OTHERS:
        found.others += (kind,)
    else:
        return _is_replace(step)
    return True


def _splits(step: Mapping[str, Any], found: _Found) -> bool:
    kind = step.get("type")
    if kind == "Metaspace" and step.get("replacement") == SPACE:
        scheme = step.get("prepend_scheme")
        found.space_prefix |= step.get("add_prefix_space", True) is True if scheme is None else scheme != "never"
    elif kind == "WhitespaceSplit":
        found.merge_spaces = True
    else:
        # At this point no space is left to split on.
        return kind == "Split" and step.get("pattern") == {"String": " "}
    return True


def _is_replace(step: Mapping[str, Any]) -> bool:
    return step.get("type") == "Replace" and step.get("pattern") == {"String": " "} and step.get("content") == SPACE


def _charsmap(text: Any, files: TokenizerFiles) -> bytes:
    if text is None:
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InputError(f"{files.tokenizer_path}: the normalizer's precompiled_charsmap is no base64 text.") from None


def _brief(step: Mapping[str, Any]) -> str:
    return str(step["type"]) if step.get("type") == "Precompiled" else shown_step(step)
