"""Tokens and types. What transformers and llama.cpp's converter make of each odd case was tried out
with transformers 5.24, tokenizers 0.23 and ``TextModel.get_vocab_base`` of llama-cpp-python 0.3.36."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.tokenizer.bytelevel import spelled_out
from tests.tokenizer.making import BASE, VOCAB, VOCAB_SIZE, added, read, rules, save, tokenizer, tokens, values

CONTROL, USER = 3, 4


def decoder(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"added_tokens_decoder": {str(e["id"]): {k: v for k, v in e.items() if k != "id"} for e in entries}}


def test_plain_vocabulary_and_padding(tmp_path: Path) -> None:
    result = read(save(tmp_path, tokenizer(added(BASE, "<a>", special=True))))
    known = values(result)
    assert known["ggml.tokens"][:BASE] == list(VOCAB)
    assert set(known["ggml.token_type"][:BASE]) == {1}
    assert (known["ggml.tokens"][BASE], known["ggml.token_type"][BASE]) == ("<a>", CONTROL)
    assert known["ggml.tokens"][BASE + 1 :] == [f"[PAD{i}]" for i in range(BASE + 1, VOCAB_SIZE)]
    assert set(known["ggml.token_type"][BASE + 1 :]) == {5}
    assert len(known["ggml.tokens"]) == VOCAB_SIZE
    (finding,) = result.findings
    assert (finding.rule, finding.severity) == ("tokenizer-padding", "info")
    assert "19 of 280 ids have no token" in finding.message


def test_exact_fit_has_nothing_to_tell(tmp_path: Path) -> None:
    from dspark_convert.tokenizer import from_directory

    result = from_directory(save(tmp_path, tokenizer(added(BASE, "<a>"))), BASE + 1)
    assert 5 not in values(result)["ggml.token_type"]
    assert result.findings == ()


def test_holes_in_the_vocabulary_are_padded_and_counted(tmp_path: Path) -> None:
    vocab = {text: i + (i >= 100) * 3 for text, i in VOCAB.items()}
    result = read(save(tmp_path, tokenizer(added(BASE + 5, "<a>"), model__vocab=vocab)))
    assert values(result)["ggml.tokens"][99:104] == [
        list(VOCAB)[99],
        "[PAD100]",
        "[PAD101]",
        "[PAD102]",
        list(VOCAB)[100],
    ]
    assert tokens(result, BASE + 3) == {BASE + 5: ("<a>", USER)}
    assert f"5 of them below the highest used id {BASE + 5}" in result.findings[0].message


@pytest.mark.parametrize(
    ("entries", "settings", "expected"),
    [
        ([added(BASE, "<a>", special=True), added(BASE + 1, "<b>")], {}, [("<a>", CONTROL), ("<b>", USER)]),
        # the config's flags win, in both directions
        (
            [added(BASE, "<a>"), added(BASE + 1, "<b>", special=True)],
            decoder(added(BASE, "<a>", special=True), added(BASE + 1, "<b>")),
            [("<a>", CONTROL), ("<b>", USER)],
        ),
        # the config may have more of them
        ([added(BASE, "<a>")], decoder(added(BASE + 1, "<n>", special=True)), [("<a>", USER), ("<n>", CONTROL)]),
        # what the config names for a role is special
        (
            [added(BASE + i, t) for i, t in enumerate(("<a>", "<b>", "<c>", "<d>"))],
            {"eos_token": "<a>", "pad_token": {"content": "<b>"}, "extra_special_tokens": {"image_token": "<c>"}},
            [("<a>", CONTROL), ("<b>", CONTROL), ("<c>", CONTROL), ("<d>", USER)],
        ),
        ([added(BASE, "<a>")], {"additional_special_tokens": ["<a>"]}, [("<a>", CONTROL)]),
        # not marked as special, but of a well-known form
        (
            [added(BASE + i, t) for i, t in enumerate(("<|x|>", "<pad>", "<unused3>", "<｜q｜>", "[@BOS@]", "<|"))],
            {},
            [("<|x|>", 3), ("<pad>", 3), ("<unused3>", 3), ("<｜q｜>", 3), ("[@BOS@]", 3), ("<|", USER)],
        ),
        # not normalised: llama.cpp gets the text that the token stands for
        (
            [added(BASE, "Ġx"), added(BASE + 1, "éĠ", normalized=True), added(BASE + 2, "Ġ y"), added(BASE + 3, "a▁b")],
            {},
            [(" x", USER), ("éĠ", USER), ("Ġ y", USER), ("a b", USER)],
        ),
        ([added(BASE, "ÿz")], {}, [("\ufffdz", USER)]),
    ],
)  # fmt: skip
def test_added_tokens(
    tmp_path: Path, entries: list[dict[str, Any]], settings: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    result = read(save(tmp_path, tokenizer(*entries), settings))
    assert tokens(result) == {BASE + i: entry for i, entry in enumerate(expected)}
    assert rules(result) == ["tokenizer-padding"]


def test_added_token_that_the_vocabulary_has_keeps_its_id(tmp_path: Path) -> None:
    result = read(save(tmp_path, tokenizer(added(VOCAB["he"], "he", special=True), added(BASE, "<a>"))))
    assert tokens(result, VOCAB["he"])[VOCAB["he"]] == ("he", CONTROL)
    assert values(result)["ggml.tokens"].count("he") == 1


def test_named_token_that_nothing_declares_gets_the_next_id(tmp_path: Path) -> None:
    settings = {"eos_token": "<a>", "pad_token": "<p>", "bos_token": "<b>", "additional_special_tokens": ["<n>"]}
    result = read(save(tmp_path, tokenizer(added(BASE, "<a>")), settings))
    assert tokens(result) == {
        BASE: ("<a>", CONTROL),
        BASE + 1: ("<b>", CONTROL),
        BASE + 2: ("<p>", CONTROL),
        BASE + 3: ("<n>", CONTROL),
    }
    assert rules(result).count("tokenizer-unknown-special") == 3


def test_named_token_without_room_is_left_out(tmp_path: Path) -> None:
    from dspark_convert.tokenizer import from_directory

    result = from_directory(save(tmp_path, tokenizer(), {"pad_token": "[PAD]"}), BASE)
    assert values(result)["ggml.tokens"] == list(VOCAB)
    assert "ggml.padding_token_id" not in values(result)
    assert [f.severity for f in result.findings] == ["warning"]


def test_ids_that_the_library_would_not_give_are_told_once(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    entries = [added(BASE, "<a>"), added(BASE + 5, "<b>"), added(BASE + 6, "<c>")]
    directory = save(tmp_path, tokenizer(*entries))
    oracle = Tokenizer.from_file(str(directory / "tokenizer.json"))
    result = read(directory)
    assert {text: i for i, (text, _) in tokens(result).items()} == {
        t: oracle.token_to_id(t) for t in ("<a>", "<b>", "<c>")
    }
    (finding,) = [f for f in result.findings if f.rule == "tokenizer-added-id"]
    assert "'<b>' states id 265, but the tokenizers library gives it 261 and 1 more like it" in finding.message


@pytest.mark.parametrize("text", ["Ġx", "é", "ÿz", "Ċ", "a b", "ĠĠ", "中", "<|im_end|>", "Ã©", "¡"])
def test_spelling_is_that_of_the_byte_level_decoder(text: str) -> None:
    from tokenizers.decoders import ByteLevel

    assert spelled_out(text) == ByteLevel().decode([text])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (tokenizer(added(VOCAB_SIZE, "<a>"), model__vocab={**VOCAB, "hole": 262}), r"ids up to 280, but .* is 280"),
        (tokenizer(model__vocab={**VOCAB, "more": 300}), r"ids up to 300, but the model's vocab_size is 280"),
        (tokenizer(model__vocab={**VOCAB, "again": 5}), r"gives id 5 to two tokens, .* and 'again'"),
        (tokenizer(added(BASE, "Ġx"), added(BASE + 1, " x")), r"ids 260 and 261 both stand for ' x'"),
        (tokenizer(model__vocab={**VOCAB, "[PAD270]": 260}), r"ids 260 and 270 both stand for '\[PAD270\]'"),
        (tokenizer(model__vocab={**VOCAB, "x\ud800": 260}), r"token 260 \('x\\ud800'\) holds half a surrogate pair"),
        (tokenizer(model__vocab={**VOCAB, "neg": -1}), r"token 'neg' the id -1"),
        (tokenizer(model__vocab={**VOCAB, "yes": True}), r"token 'yes' the id True"),
        (tokenizer(model__vocab={}), r"no vocabulary"),
        (tokenizer(model__vocab=["a"]), r"no vocabulary"),
        (tokenizer({"id": BASE}), r"added token without text or id"),
        (tokenizer({"content": "<a>"}), r"added token without text or id"),
        (tokenizer(added_tokens={"<a>": 1}), r"added_tokens is no list"),
        (tokenizer(model__type="WordPiece"), r"of type 'WordPiece'; only BPE and Unigram are .*--target-gguf FILE"),
        (tokenizer(model__byte_fallback=True), r"prepares text in a way .*seen: Split .*--target-gguf FILE"),
        (tokenizer(model__end_of_word_suffix="</w>"), r"end_of_word_suffix '</w>'"),
        (tokenizer(model=None), r'no "model" object'),
    ],
)  # fmt: skip
def test_bad_vocabulary_is_one_clear_error(tmp_path: Path, document: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(save(tmp_path, document))


def test_bad_decoder_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"added_tokens_decoder should map token ids to tokens"):
        read(save(tmp_path, tokenizer(), {"added_tokens_decoder": {"x": {"content": "<a>"}}}))


def test_token_that_stands_twice_is_an_error(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer())
    path = directory / "tokenizer.json"
    path.write_text(path.read_text().replace('"he": 256', '"he": 256, "he": 256'))
    with pytest.raises(InputError, match=r"key 'he' stands there twice"):
        read(directory)
