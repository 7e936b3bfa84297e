"""The proof for SentencePiece: llama.cpp cuts text by what is written as the tokenizers library does by the source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.tokenizer import from_directory
from tests.tokenizer.llama_cpp import in_llama_cpp, write_vocabulary
from tests.tokenizer.making import added, rules, save, values
from tests.tokenizer.pieces_making import (
    FIRST,
    GEMMA_SPLIT,
    METASPACE,
    REPLACE,
    SPACE,
    TEXTS,
    bpe_document,
    llama_model,
    normalizer,
    save_model,
    train_pieces,
    trainer,
    unigram_document,
)


@pytest.fixture(scope="module")
def pieces() -> list[str]:
    return train_pieces()


def oracle(directory: Path, texts: tuple[str, ...]) -> list[list[int]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def written(directory: Path, size: int) -> Path:
    return write_vocabulary(directory / "v.gguf", from_directory(directory, size).kvs)


def test_bpe_of_each_family_is_cut_alike(pieces: list[str], tmp_path: Path) -> None:
    size = FIRST + len(pieces) + 4
    turn = added(FIRST + len(pieces), "<|turn>", special=True)
    metaspace = {**METASPACE, "split": False}
    llama = save(tmp_path / "llama", bpe_document(pieces, turn))
    newer = save(tmp_path / "newer", bpe_document(pieces, turn, normalizer=None, pre_tokenizer=metaspace))
    gemma = bpe_document(pieces, turn, normalizer=REPLACE, pre_tokenizer=GEMMA_SPLIT)
    gemma3 = save(tmp_path / "gemma3", gemma, config={"model_type": "gemma3"})
    gemma4 = save(tmp_path / "gemma4", gemma, config={"text_config": {"model_type": "gemma4_text"}})
    directories = [llama, newer, gemma3, gemma4]
    got = in_llama_cpp([written(directory, size) for directory in directories], TEXTS)
    for directory, ids in zip(directories, got, strict=True):
        assert ids is not None, f"llama.cpp refused {directory.name}"
        # Like SentencePiece, llama.cpp puts a space before every text; Metaspace does not before a space.
        texts = [i for i, text in enumerate(TEXTS) if directory is not newer or "> " not in ">" + text]
        expected = oracle(directory, TEXTS)
        assert [ids[i] for i in texts] == [expected[i] for i in texts], directory.name
    assert got[0] != got[2]


def test_scores_decide_and_a_wrong_order_would_be_noticed(tmp_path: Path) -> None:
    pieces, texts = ("ab", "bc", "a", "b", "c", SPACE), ("abc", "bcabcab")
    directory = save(tmp_path, bpe_document(pieces))
    expected = oracle(directory, texts)
    right = from_directory(directory, FIRST + len(pieces)).kvs
    wrong = tuple(
        replace(kv, value=[*kv.value[:FIRST], *reversed(kv.value[FIRST:])]) if kv.key.endswith("scores") else kv
        for kv in right
    )
    paths = [write_vocabulary(tmp_path / "right.gguf", right), write_vocabulary(tmp_path / "wrong.gguf", wrong)]
    as_written, turned = in_llama_cpp(paths, texts)
    assert as_written == expected != turned


def test_unigram_is_cut_alike(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(TEXTS * 4, trainers.UnigramTrainer(vocab_size=150, show_progress=False))
    vocab = trained.get_vocab()
    # Scores without ties: two ways of cutting that are equally good are no matter of right or wrong.
    listed = [(text, -2.0 - 0.0137 * vocab[text] ** 1.1) for text in sorted(vocab, key=lambda text: vocab[text])]
    directory = save(tmp_path, unigram_document(listed))
    texts = tuple(text for text in TEXTS if "\n" not in text and "<" not in text)
    (got,) = in_llama_cpp([written(directory, len(listed) + 5)], texts)
    assert got == oracle(directory, texts)


def test_sentencepieces_own_file_gives_what_tokenizer_json_gives(pieces: list[str], tmp_path: Path) -> None:
    size = FIRST + len(pieces) + 4
    turn = added(FIRST + len(pieces), "<|turn>", special=True)
    settings: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    specials = {str(i): entry for i, entry in enumerate(bpe_document(pieces)["added_tokens"])}
    settings["added_tokens_decoder"] = specials | {str(turn["id"]): turn}
    from_json = from_directory(save(tmp_path / "json", bpe_document(pieces, turn), settings), size)
    data = llama_model(pieces, trainer(), normalizer())
    from_model = from_directory(save_model(tmp_path / "model", data, tokenizer_config=settings), size)
    assert values(from_model) == values(from_json)
    assert rules(from_model) == rules(from_json) == ["tokenizer-padding"]
