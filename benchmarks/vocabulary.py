"""A made-up byte-level BPE tokenizer of real size, in the files that transformers reads.

It merges nothing that any language needs, but it has what costs time: as many tokens and merges as Qwen3's, of about
their lengths.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

#: Qwen3's ordinary tokens, and a merge for all but the 256 bytes
TOKENS = 151_643

#: tokens are as long as in Qwen3's file: 6 characters on average
MAX_TOKEN_LENGTH = 12

_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def write_tokenizer(directory: Path, tokens: int = TOKENS) -> None:
    """tokenizer.json and tokenizer_config.json with ``tokens`` ordinary tokens and three special ones behind."""
    texts, merges = _merged(tokens)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _PATTERN}, "behavior": "Isolated", "invert": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": tokens + i, "content": text, **flags} for i, text in enumerate(_SPECIAL)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: i for i, text in enumerate(texts)},
            "merges": merges,
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": _SPECIAL[2],
        "pad_token": _SPECIAL[0],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 131072,
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, indent=2), "utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def _merged(count: int) -> tuple[list[str], list[tuple[str, str]]]:
    """``count`` tokens: the 256 bytes, then each one two earlier ones joined."""
    draw = random.Random(0)  # noqa: S311 - nothing secret
    texts = _byte_characters()
    known = set(texts)
    merges = []
    while len(texts) < count:
        # Early tokens are the frequent ones, of which the later ones are made.
        left, right = (texts[int(len(texts) * draw.random() ** 3)] for _ in range(2))
        joined = left + right
        if len(joined) <= MAX_TOKEN_LENGTH and joined not in known:
            known.add(joined)
            texts.append(joined)
            merges.append((left, right))
    return texts, merges


def _byte_characters() -> list[str]:
    """The characters that stand for the 256 bytes in GPT-2's byte-level BPE: printable ones for themselves, the rest
    from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return [chr(byte) for byte in printable] + [chr(0x100 + i) for i in range(len(others))]
