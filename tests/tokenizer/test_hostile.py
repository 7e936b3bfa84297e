"""Any value at any place of the files gives a tokenizer that can be written, or one InputError."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.tokenizer import from_directory
from tests.tokenizer.making import BASE, VOCAB_SIZE, added, encoded, tokenizer
from tests.tokenizer.pieces_making import (
    FIRST,
    GEMMA_SPLIT,
    METASPACE,
    REPLACE,
    bpe_document,
    llama_model,
    normalizer,
    piece,
    save_model,
    trainer,
    unigram_document,
)
from tests.tokenizer.test_special import BOS_FIRST, BYTES

ODD: list[Any] = [None, 0, -1, 10**30, 1.5, True, "", "x", "\ud800", [], [None], [1], {}, {"a": 1}, [{}], [[]]]
ODD += ["__class__", {"type": "Sequence"}]

DOCUMENTS: dict[str, Any] = {
    "tokenizer.json": tokenizer(
        added(BASE, "<s>", special=True),
        added(BASE + 1, "<a>"),
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]},
        post_processor={"type": "Sequence", "processors": [BYTES, BOS_FIRST]},
    ),
    "tokenizer_config.json": {
        "bos_token": "<s>",
        "eos_token": {"content": "<a>"},
        "add_bos_token": True,
        "chat_template": [{"name": "default", "template": "x"}, {"name": "b", "template": "y"}],
        "additional_special_tokens": ["<a>"],
        "added_tokens_decoder": {str(BASE): {"content": "<s>", "special": True}},
    },
    "config.json": {"model_type": "qwen3", "eos_token_id": [1, 2], "text_config": {"bos_token_id": 3}},
}

SPLIT = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}
CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "BAAAAGFiY2QA"}
PIECES: dict[str, Any] = {
    "llama": bpe_document(("ab", "a", "b"), added(FIRST + 3, "<a>")),
    "gemma": bpe_document(("ab", "a", "b"), added(FIRST + 3, "<a>"), normalizer=REPLACE, pre_tokenizer=GEMMA_SPLIT),
    "t5": unigram_document((("ab", -1.5), ("a", -2)), normalizer=CHARSMAP, pre_tokenizer=SPLIT),
}
COMPANIONS: dict[str, Any] = {
    "added_tokens.json": {"<a>": FIRST + 3, "<b>": FIRST + 4},
    "tokenizer_config.json": {
        "add_prefix_space": False,
        "bos_token": "<s>",
        "added_tokens_decoder": {str(FIRST + 5): {"content": "<c>", "special": True}},
    },
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items)[:12]:
        yield from places(item, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("name", DOCUMENTS)
def test_odd_values_everywhere(name: str, tmp_path: Path) -> None:
    for other, document in DOCUMENTS.items():
        (tmp_path / other).write_text(json.dumps(document))
    assert min(outcomes(tmp_path / name, DOCUMENTS[name], VOCAB_SIZE)) > 5


@pytest.mark.parametrize("kind", PIECES)
def test_odd_values_everywhere_in_sentencepieces_manner(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma4" if kind == "gemma" else "llama"}))
    assert min(outcomes(tmp_path / "tokenizer.json", PIECES[kind], FIRST + 8)) > 5


@pytest.mark.parametrize("name", COMPANIONS)
def test_odd_values_beside_sentencepieces_own_file(name: str, tmp_path: Path) -> None:
    save_model(tmp_path, llama_model(("ab", "a", "b"), trainer(), normalizer()))
    for other, document in COMPANIONS.items():
        (tmp_path / other).write_text(json.dumps(document))
    assert min(outcomes(tmp_path / name, COMPANIONS[name], FIRST + 8)) > 1


def test_odd_bytes_everywhere_in_sentencepieces_own_file(tmp_path: Path) -> None:
    choose = random.Random(0)
    pieces = piece("<unk>", kind=2) + piece("a", -1.0) + piece("<0x41>", kind=6)
    data = pieces + trainer(1, unk=0, bos=-1) + normalizer(charsmap=b"\x04\0\0\0abcd\0")
    counts = [0, 0]
    for place in range(len(data)):
        for byte in choose.sample(range(256), 4):
            (tmp_path / "tokenizer.model").write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
            counts[is_written(tmp_path, 4)] += 1
    assert min(counts) > 30


def outcomes(path: Path, document: Any, size: int) -> tuple[int, int]:
    """How many of the odd documents are refused, and how many written."""
    choose = random.Random(path.name)
    counts = [0, 0]
    for place in places(document):
        for odd in choose.sample(ODD, 8):
            path.write_text(json.dumps(replaced(document, place, odd)))
            counts[is_written(path.parent, size)] += 1
    return counts[0], counts[1]


def is_written(directory: Path, size: int) -> bool:
    try:
        result = from_directory(directory, size)
    except InputError as e:
        assert str(e).isprintable()
        return False
    return bool(encoded(result.kvs))
