"""Small tokenizers in Hugging Face's form, written field by field for one test each."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from dspark_convert.ggufio.types import KV
from dspark_convert.tokenizer import TokenizerKVs, from_directory

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def alphabet() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


#: 256 bytes and four merges; the first added token gets id 260
PIECES = ("he", "ll", "hell", "Ġt")
VOCAB = {text: i for i, text in enumerate((*alphabet(), *PIECES))}
BASE = len(VOCAB)
VOCAB_SIZE = BASE + 20


def split(regex: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(token_id: int, content: str, *, special: bool = False, normalized: bool = False) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return {"id": token_id, "content": content, "special": special, "normalized": normalized, **flags}


def tokenizer(*added_tokens: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A tokenizer.json; ``fields`` replace its top-level ones, ``model__NAME`` those of the model."""
    document: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": list(added_tokens),
        "normalizer": None,
        "pre_tokenizer": sequence(split(QWEN2), BYTES),
        "post_processor": None,
        "decoder": BYTES,
        "model": {
            "type": "BPE",
            "vocab": dict(VOCAB),
            "merges": ["h e", "l l", "he ll", "Ġ t"],
        },
    }
    for name, value in fields.items():
        if name.startswith("model__"):
            document["model"][name.removeprefix("model__")] = value
        else:
            document[name] = value
    return copy.deepcopy(document)


def save(
    directory: Path,
    document: Any,
    settings: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write ``document`` as tokenizer.json, ``settings`` and ``config`` beside it unless None."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    for name, content in (("tokenizer_config.json", settings), ("config.json", config)):
        if content is not None:
            (directory / name).write_text(json.dumps(content), encoding="utf-8")
    return directory


def read(directory: Path, **options: Any) -> TokenizerKVs:
    return from_directory(directory, VOCAB_SIZE, **options)


def values(result: TokenizerKVs) -> dict[str, Any]:
    """Key -> value, the prefix ``tokenizer.`` left off."""
    return {kv.key.removeprefix("tokenizer."): kv.value for kv in result.kvs}


def tokens(result: TokenizerKVs, start: int = BASE) -> dict[int, tuple[str, int]]:
    """Id -> (text, type) of the tokens from ``start`` on that are no padding."""
    known = values(result)
    pairs = zip(known["ggml.tokens"], known["ggml.token_type"], strict=True)
    return {i: pair for i, pair in enumerate(pairs) if i >= start and pair[1] != 5}


def pre_of(result: TokenizerKVs) -> str:
    """The pre-tokenizer's name."""
    name = values(result)["ggml.pre"]
    assert isinstance(name, str)
    return name


def rules(result: TokenizerKVs) -> list[str]:
    return [finding.rule for finding in result.findings]


def encoded(kvs: tuple[KV, ...]) -> bytes:
    """Keys and values as they stand in a GGUF, encoded without the package's own code."""
    from tests.gguf_bytes import Builder

    gguf = Builder()
    return b"".join(gguf.kv(kv.key, kv.type, kv.value, kv.item_type) for kv in kvs)
