from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.tokenizer import from_directory
from tests.tokenizer.making import added, rules, save, sequence, split, values
from tests.tokenizer.pieces_making import (
    FIRST,
    JOIN,
    LLAMA_NORMALIZER,
    METASPACE,
    PREPEND,
    REPLACE,
    SPACE,
    bpe_document,
    unigram_document,
)

#: "ab" is made first, "abc" next; the characters are made by nothing
PIECES = ("ab", "abc", "a", "b", "c")
SIZE = FIRST + len(PIECES) + 3
UNIGRAM = ((f"{SPACE}a", -1.5), ("b", -2.25), ("c", -3))


def keys_of(tmp_path: Path, document: dict[str, Any], size: int = SIZE, **companions: Any) -> dict[str, Any]:
    return values(from_directory(save(tmp_path, document, **companions), size))


def test_scores_follow_the_merges(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, bpe_document(("abc", "c", "ab", "a", "b")))
    # "ab c" stands first among the merges here, but the piece "ab" stands behind "abc" in the vocabulary
    by_text = dict(zip(keys["ggml.tokens"], keys["ggml.scores"], strict=True))
    assert [by_text[text] for text in ("abc", "ab", "c", "a", "b")] == [0.0, -1.0, -2.0, -3.0, -4.0]
    assert (by_text["<s>"], by_text["<0x41>"], by_text[f"[PAD{SIZE - 1}]"]) == (-1000.0, 0.0, -10000.0)


def test_added_tokens_are_not_counted_in_the_scores(tmp_path: Path) -> None:
    document = bpe_document(PIECES, added(FIRST, "ab"))
    keys = keys_of(tmp_path, document)
    assert keys["ggml.scores"][FIRST : FIRST + 5] == [-1000.0, 0.0, -1.0, -2.0, -3.0]
    assert keys["ggml.token_type"][FIRST] == 4


def test_types_tell_bytes_unknown_and_added_tokens(tmp_path: Path) -> None:
    document = bpe_document(PIECES, added(FIRST + 5, "<unused7>"), added(FIRST + 6, f"{SPACE}{SPACE}"))
    document["added_tokens"].pop(0)
    keys = keys_of(tmp_path, document)
    assert keys["ggml.token_type"][:4] == [2, 3, 3, 6]
    assert keys["ggml.token_type"][FIRST - 1 : FIRST + 8] == [6, 1, 1, 1, 1, 1, 3, 4, 5]
    assert keys["ggml.tokens"][FIRST + 6] == "  "
    assert keys["ggml.unknown_token_id"] == 0


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer", "settings", "prefix"),
    [
        (LLAMA_NORMALIZER, None, {}, True),
        (REPLACE, None, {}, False),
        (REPLACE, None, {"add_prefix_space": True}, True),
        (LLAMA_NORMALIZER, None, {"add_prefix_space": False}, False),
        (None, METASPACE, {}, True),
        (None, {**METASPACE, "prepend_scheme": "first"}, {}, True),
        (None, {**METASPACE, "prepend_scheme": "never"}, {}, False),
        (None, {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}, {}, True),
        (None, {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": False}, {}, False),
    ],
)
def test_space_before_the_text(
    tmp_path: Path, normalizer: Any, pre_tokenizer: Any, settings: dict[str, Any], prefix: bool
) -> None:
    document = bpe_document(PIECES, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    keys = keys_of(tmp_path, document, settings=settings)
    assert keys["ggml.model"] == "llama"
    assert keys["ggml.add_space_prefix"] is prefix


def test_steps_that_llama_cpp_does_not_take_are_told(tmp_path: Path) -> None:
    steps = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, JOIN, PREPEND, REPLACE]}
    result = from_directory(save(tmp_path, bpe_document(PIECES, normalizer=steps)), SIZE)
    assert rules(result) == ["tokenizer-padding", "tokenizer-preparation"]
    assert "(NFKC, joining runs of spaces)" in result.findings[1].message


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"pre_tokenizer": sequence(split(r"\p{N}"))}, r"then Split \(pattern"),
        ({"normalizer": {"type": "Sequence", "normalizers": [REPLACE, {"type": "BertNormalizer"}]}}, "BertNormalizer"),
        ({"normalizer": {**PREPEND, "prepend": "_"}}, "Prepend"),
        ({"pre_tokenizer": {**METASPACE, "replacement": "_"}}, "Metaspace"),
    ],
)
def test_unknown_steps_are_shown(tmp_path: Path, fields: dict[str, Any], seen: str) -> None:
    with pytest.raises(InputError, match=rf"prepares text in a way .*seen: .*{seen}.*--target-gguf FILE"):
        keys_of(tmp_path, bpe_document(PIECES, **fields))


def test_pre_tokenizer_by_hand_is_told_to_be_of_no_use(tmp_path: Path) -> None:
    directory = save(tmp_path, bpe_document(PIECES))
    result = from_directory(directory, SIZE, pre="qwen2")
    assert rules(result) == ["tokenizer-padding", "tokenizer-pre-differs"]
    assert values(result) == values(from_directory(directory, SIZE))


GEMMA4 = {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}}


def test_gemma4_has_merges_and_its_chat_tokens_are_visible(tmp_path: Path) -> None:
    runs = (SPACE, f"{SPACE}{SPACE}")
    more = [added(FIRST + 7, "<|channel>", special=True), added(FIRST + 8, "<|turn>", special=True)]
    document = bpe_document((*PIECES, *runs), added(FIRST + 6, runs[1]), *more, normalizer=REPLACE)
    keys = keys_of(tmp_path, document, FIRST + 10, config=GEMMA4)
    assert keys["ggml.model"] == "gemma4"
    assert "ggml.pre" not in keys
    assert keys["ggml.merges"] == ["a b", "ab c", f"{SPACE} {SPACE}"]
    assert set(keys["ggml.scores"]) == {-1000.0}
    # the run of spaces is made by merges, which look it up by this spelling
    assert keys["ggml.tokens"][FIRST + 6 :] == [runs[1], "<|channel>", "<|turn>", f"[PAD{FIRST + 9}]"]
    assert keys["ggml.token_type"][FIRST + 6 :] == [1, 4, 3, 5]
    assert (keys["ggml.add_space_prefix"], keys["ggml.add_bos_token"]) == (False, True)


def test_other_models_with_the_same_tokenizer_are_no_gemma4(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, bpe_document(PIECES, normalizer=REPLACE), config={"model_type": "gemma3"})
    assert keys["ggml.model"] == "llama"


@pytest.mark.parametrize("joined", [JOIN, {**JOIN, "content": SPACE}, {"type": "Strip"}])
def test_unigram_has_the_files_scores(tmp_path: Path, joined: dict[str, Any]) -> None:
    charsmap = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\x04\0\0\0abcd\xff\0").decode()}
    steps = {"type": "Sequence", "normalizers": [charsmap, joined]}
    result = from_directory(save(tmp_path, unigram_document(UNIGRAM, normalizer=steps)), 7)
    keys = values(result)
    assert keys["ggml.model"] == "t5"
    assert keys["ggml.tokens"] == ["<pad>", "</s>", "<unk>", f"{SPACE}a", "b", "c", "[PAD6]"]
    assert keys["ggml.scores"] == [-1000.0, -1000.0, -1000.0, -1.5, -2.25, -3.0, -10000.0]
    assert keys["ggml.token_type"] == [3, 3, 3, 1, 1, 1, 5]
    assert keys["ggml.unknown_token_id"] == 2
    assert keys["ggml.precompiled_charsmap"] == list(b"\x04\0\0\0abcd\xff\0")
    assert (keys["ggml.add_space_prefix"], keys["ggml.remove_extra_whitespaces"]) == (True, True)
    assert rules(result) == ["tokenizer-padding"]


def test_split_on_whitespace_joins_spaces(tmp_path: Path) -> None:
    steps = sequence({"type": "WhitespaceSplit"}, METASPACE)
    keys = keys_of(tmp_path, unigram_document(UNIGRAM, normalizer=None, pre_tokenizer=steps), 6)
    assert keys["ggml.remove_extra_whitespaces"] is True
    assert "ggml.precompiled_charsmap" not in keys


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ([], r"has no vocabulary \(model.vocab of a Unigram"),
        ({"a": 1}, r"has no vocabulary \(model.vocab of a Unigram"),
        ([["a", 0.0], ["b"]], r"token 1 is no pair of a text and a score"),
        ([["a", "0"]], r"token 0 is no pair of a text and a score"),
        ([["a", True]], r"token 0 is no pair of a text and a score"),
        ([[1, 0.0]], r"token 0 is no pair of a text and a score"),
        ([["a", float("inf")]], r"token 0 is no pair of a text and a score"),
        ([["a", 0.0], ["a", 1.0]], r"the token 'a' twice, as 0 and 1"),
    ],
)
def test_bad_list_of_scores_is_one_clear_error(tmp_path: Path, vocab: Any, message: str) -> None:
    document = unigram_document(UNIGRAM)
    document["model"]["vocab"] = vocab
    with pytest.raises(InputError, match=message):
        keys_of(tmp_path, document)


def test_bad_table_of_replacements_is_an_error(tmp_path: Path) -> None:
    document = unigram_document(UNIGRAM, normalizer={"type": "Precompiled", "precompiled_charsmap": "%"})
    with pytest.raises(InputError, match=r"precompiled_charsmap is no base64 text"):
        keys_of(tmp_path, document)
