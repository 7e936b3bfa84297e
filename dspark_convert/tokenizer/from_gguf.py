"""The tokenizer of a target that is there only as a GGUF: copied, not rebuilt."""

from __future__ import annotations

from pathlib import Path

from dspark_convert.errors import InputError
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.ggufio.types import KV, ValueType
from dspark_convert.ggufio.values import Metadata
from dspark_convert.tokenizer import template
from dspark_convert.tokenizer.result import TokenizerKVs

_MODEL = "tokenizer.ggml.model"
_TOKENS = "tokenizer.ggml.tokens"
_MASK = "tokenizer.ggml.mask_token_id"

#: what llama.cpp calls a file without a tokenizer
NO_TOKENIZER = ("none", "no_vocab")


def from_gguf(path: Path, *, chat_template: bool = True) -> TokenizerKVs:
    """All ``tokenizer.*`` entries of a GGUF, byte for byte, but for its own mask token.

    A big-endian file's entries are encoded anew. ``chat_template=False`` leaves templates out.
    Raises InputError if the file is no GGUF or has no tokenizer.
    """
    with open_gguf(path) as gguf:
        return from_metadata(gguf.metadata, path, chat_template=chat_template)


def from_metadata(metadata: Metadata, path: Path, *, chat_template: bool = True) -> TokenizerKVs:
    """As ``from_gguf``, of an open file; ``path`` names it in messages."""
    keys = [key for key in metadata if key.startswith("tokenizer.") and key != _MASK]
    if not chat_template:
        keys = [key for key in keys if not key.startswith(template.KEY)]
    by_key = {key: metadata.held(key) for key in keys}
    _require_tokenizer(by_key, path)
    return TokenizerKVs(tuple(by_key.values()), tuple(template.judge(by_key.values())))


def _require_tokenizer(by_key: dict[str, KV], path: Path) -> None:
    model = by_key.get(_MODEL)
    tokens = by_key.get(_TOKENS)
    if model is None:
        lack = f"{_MODEL} is missing"
    elif model.value in NO_TOKENIZER:
        lack = f"{_MODEL} is {model.value!r}"
    elif tokens is None or tokens.item_type is not ValueType.STRING:
        lack = f"{_TOKENS} is no list of strings"
    else:
        return
    raise InputError(
        f"{path} has no tokenizer to copy ({lack}); give a GGUF of the target that has one, or the target's"
        " Hugging Face directory (--target-model-dir DIR)."
    )
