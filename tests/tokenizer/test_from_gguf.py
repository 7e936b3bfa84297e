from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.ggufio.types import KV
from dspark_convert.tokenizer import from_gguf
from tests.gguf_bytes import Builder

#: key, type, value, item type; the two in between are not the tokenizer's
ENTRIES: list[tuple[Any, ...]] = [
    ("general.architecture", 8, "qwen3"),
    ("tokenizer.ggml.model", 8, "gpt2"),
    ("tokenizer.ggml.pre", 8, "qwen2"),
    ("tokenizer.ggml.tokens", 9, [b"a", "Ġ", b"\xff\xfe", "[PAD3]"], 8),
    ("tokenizer.ggml.scores", 9, [0.5, -1.0, 0.0, 1e30], 6),
    ("qwen3.block_count", 4, 2),
    ("tokenizer.ggml.token_type", 9, [1, 1, 6, 5], 5),
    ("tokenizer.ggml.merges", 9, ["a Ġ"], 8),
    ("tokenizer.ggml.mask_token_id", 4, 3),
    ("tokenizer.ggml.add_bos_token", 7, False),
    ("tokenizer.ggml.precompiled_charsmap", 9, [0, 255, 7], 0),
    ("tokenizer.chat_template.rag", 8, "{{ x.__class__ }}"),
    ("tokenizer.chat_templates", 9, ["rag"], 8),
    ("tokenizer.chat_template", 8, "plain"),
]


def write(path: Path, entries: list[tuple[Any, ...]], order: str = "<", version: int = 3) -> Path:
    gguf = Builder(order, version)
    path.write_bytes(gguf.file([gguf.kv(*entry) for entry in entries]))
    return path


def without(*keys: str) -> list[tuple[Any, ...]]:
    return [entry for entry in ENTRIES if entry[0] not in keys]


TOKENIZER = [e for e in ENTRIES if e[0].startswith("tokenizer.") and e[0] != "tokenizer.ggml.mask_token_id"]


@pytest.mark.parametrize("version", [2, 3])
def test_entries_are_copied_byte_for_byte_but_for_the_mask(tmp_path: Path, version: int) -> None:
    result = from_gguf(write(tmp_path / "t.gguf", ENTRIES, version=version))
    gguf = Builder()
    assert [(kv.key, int(kv.type), kv.raw) for kv in result.kvs] == [
        (key, kind, gguf.value(kind, value, *item)) for key, kind, value, *item in TOKENIZER
    ]


def test_values_outlive_the_file(tmp_path: Path) -> None:
    result = from_gguf(write(tmp_path / "t.gguf", ENTRIES))
    by_key = {kv.key: kv.value for kv in result.kvs}
    assert by_key["tokenizer.ggml.token_type"] == [1, 1, 6, 5]
    assert by_key["tokenizer.ggml.tokens"][:2] == ["a", "Ġ"]
    assert by_key["tokenizer.ggml.add_bos_token"] is False


def test_templates_are_judged_and_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.gguf", ENTRIES)
    assert [(f.rule, f.where) for f in from_gguf(path).findings] == [
        ("chat-template-attribute", "tokenizer.chat_template.rag")
    ]
    bare = from_gguf(path, chat_template=False)
    assert bare.findings == ()
    assert [kv for kv in bare.kvs if "chat_template" in kv.key] == []
    assert len(bare.kvs) == len(TOKENIZER) - 3


def test_big_endian_entries_are_encoded_anew(tmp_path: Path) -> None:
    entries = [e for e in ENTRIES if e[0] != "tokenizer.ggml.tokens"]
    entries.append(("tokenizer.ggml.tokens", 9, ["a", "Ġ", "c", "[PAD3]"], 8))
    result = from_gguf(write(tmp_path / "t.gguf", entries, order=">"))
    assert {kv.raw for kv in result.kvs} == {None}
    by_key = {kv.key: kv for kv in result.kvs}
    assert by_key["tokenizer.ggml.tokens"].value == ["a", "Ġ", "c", "[PAD3]"]
    assert by_key["tokenizer.ggml.scores"].value == [0.5, -1.0, 0.0, struct.unpack("f", struct.pack("f", 1e30))[0]]


def test_written_again_and_read_by_gguf_py_it_is_the_same(tmp_path: Path) -> None:
    import gguf

    from dspark_convert.ggufio.types import string
    from dspark_convert.writing.writer import write as write_gguf

    source = write(tmp_path / "t.gguf", ENTRIES)
    head: tuple[KV, ...] = (string("general.architecture", "dflash"),)
    write_gguf(tmp_path / "d.gguf", [*head, *from_gguf(source).kvs], [])
    theirs, ours = (gguf.GGUFReader(path).fields for path in (source, tmp_path / "d.gguf"))
    keys = [key for key in theirs if key.startswith("tokenizer.") and "mask" not in key]
    assert [key for key in ours if key.startswith("tokenizer.")] == keys
    for key in keys:
        assert [part.tolist() for part in ours[key].parts] == [part.tolist() for part in theirs[key].parts]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (without("tokenizer.ggml.model"), r"tokenizer.ggml.model is missing"),
        (ENTRIES[:1], r"tokenizer.ggml.model is missing"),
        ([*without("tokenizer.ggml.model"), ("tokenizer.ggml.model", 8, "none")], r"is 'none'"),
        ([*without("tokenizer.ggml.model"), ("tokenizer.ggml.model", 8, "no_vocab")], r"is 'no_vocab'"),
        (without("tokenizer.ggml.tokens"), r"tokenizer.ggml.tokens is no list of strings"),
        ([*without("tokenizer.ggml.tokens"), ("tokenizer.ggml.tokens", 9, [1], 4)], r"no list of strings"),
        ([*without("tokenizer.ggml.tokens"), ("tokenizer.ggml.tokens", 4, 1)], r"no list of strings"),
    ],
)
def test_file_without_tokenizer_is_refused(tmp_path: Path, entries: list[tuple[Any, ...]], words: str) -> None:
    path = write(tmp_path / "t.gguf", entries)
    with pytest.raises(InputError, match=words + r".*--target-model-dir DIR"):
        from_gguf(path)


def test_odd_types_of_lesser_entries_do_no_harm(tmp_path: Path) -> None:
    entries = without("tokenizer.ggml.token_type", "tokenizer.ggml.pre", "tokenizer.chat_template")
    entries += [("tokenizer.ggml.token_type", 4, 1), ("tokenizer.ggml.pre", 4, 7), ("tokenizer.chat_template", 4, 7)]
    result = from_gguf(write(tmp_path / "t.gguf", entries))
    by_key = {kv.key: kv.value for kv in result.kvs}
    assert (by_key["tokenizer.ggml.token_type"], by_key["tokenizer.ggml.pre"]) == (1, 7)


#: a vocabulary of each kind as llama.cpp names it, beside byte-level BPE
KINDS: dict[str, list[tuple[Any, ...]]] = {
    "llama": [("pre", 8, "default"), ("scores", 9, [-1000.0, 0.0, -1.5], 6), ("add_space_prefix", 7, False)],
    "gemma4": [
        ("scores", 9, [-1000.0] * 3, 6),
        ("merges", 9, ["\u2581 a", "\n \n"], 8),
        ("add_space_prefix", 7, False),
    ],
    "t5": [
        ("scores", 9, [0.0, -2.25, -3.5], 6),
        ("remove_extra_whitespaces", 7, True),
        ("precompiled_charsmap", 9, [4, 0, 0, 0, -1], 1),
    ],
    "bert": [("token_type_count", 4, 2)],
    "rwkv": [],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tokenizer_is_copied_entry_by_entry(tmp_path: Path, kind: str) -> None:
    common = [("model", 8, kind), ("tokens", 9, ["<unk>", "\u2581a", "\n"], 8), ("token_type", 9, [2, 1, 4], 5)]
    entries = [(f"tokenizer.ggml.{name}", *rest) for name, *rest in (*common, *KINDS[kind])]
    kvs = from_gguf(write(tmp_path / "t.gguf", entries)).kvs
    assert [(kv.key, int(kv.type), kv.value) for kv in kvs] == [entry[:3] for entry in entries]
