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
    choose = random.Random(name)
    for other, document in DOCUMENTS.items():
        (tmp_path / other).write_text(json.dumps(document))
    outcomes = {"written": 0, "refused": 0}
    for path in places(DOCUMENTS[name]):
        for odd in choose.sample(ODD, 8):
            (tmp_path / name).write_text(json.dumps(replaced(DOCUMENTS[name], path, odd)))
            try:
                result = from_directory(tmp_path, VOCAB_SIZE)
            except InputError as e:
                assert str(e).isprintable()
                outcomes["refused"] += 1
            else:
                assert encoded(result.kvs)
                outcomes["written"] += 1
    assert min(outcomes.values()) > 5
