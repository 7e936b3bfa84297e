from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from tests.tokenizer.making import BASE, VOCAB, read, save, tokenizer, values


@pytest.mark.parametrize(
    "merges",
    [
        ["h e", "l l", "he ll", "Ġ t"],
        [["h", "e"], ["l", "l"], ["he", "ll"], ["Ġ", "t"]],
        ["#version: 0.2", "h e", "l l", "he ll", "Ġ t"],
    ],
    ids=["old spelling", "new spelling", "with version line"],
)
def test_both_spellings_give_the_same(tmp_path: Path, merges: list[Any]) -> None:
    from tokenizers import Tokenizer

    directory = save(tmp_path, tokenizer(model__merges=merges))
    assert values(read(directory))["ggml.merges"] == ["h e", "l l", "he ll", "Ġ t"]
    assert Tokenizer.from_file(str(directory / "tokenizer.json")).encode("hell").tokens == ["hell"]


def test_space_inside_a_piece_is_moved_out_of_the_way(tmp_path: Path) -> None:
    import gguf

    vocab = {**VOCAB, " ": BASE, " h": BASE + 1, "e ": BASE + 2, " he ": BASE + 3}
    directory = save(tmp_path, tokenizer(model__vocab=vocab, model__merges=[[" ", "h"], ["e", " "], [" h", "e "]]))
    ours = values(read(directory))["ggml.merges"]
    assert ours == ["Ġ h", "e Ġ", "Ġh eĠ"]
    assert ours == gguf.SpecialVocab(directory, load_merges=True).merges


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([], r"no merges, without which llama.cpp loads no BPE"),
        ("h e", r"no merges"),
        (["h e", "h q"], r"merge 1 \('h' \+ 'q'\) needs the token 'hq', which is not in the vocabulary"),
        (["h e", "h "], r"merge 1 \('h' \+ ''\) needs the token ''"),
        ([["zz", "e"]], r"merge 0 \('zz' \+ 'e'\) needs the token 'zz'"),
        (["h  e"], r"merge 0 is no pair of tokens: 'h  e'"),
        (["he"], r"merge 0 is no pair"),
        ([["h", "e", "l"]], r"merge 0 is no pair of tokens: \['h', 'e', 'l'\]"),
        ([["h", 1]], r"merge 0 is no pair"),
        (["h e", None], r"merge 1 is no pair"),
    ],
)
def test_bad_merges_are_one_clear_error(tmp_path: Path, merges: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(save(tmp_path, tokenizer(model__merges=merges)))
