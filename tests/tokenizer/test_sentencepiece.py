from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.tokenizer import from_directory
from dspark_convert.tokenizer.protobuf import NotProtobuf, fields
from tests.tokenizer.making import added, rules, values
from tests.tokenizer.pieces_making import (
    BYTES,
    FIRST,
    SPACE,
    field,
    llama_model,
    normalizer,
    piece,
    save_model,
    trainer,
    varint,
)

PIECES = (f"{SPACE}a", "ab", "a", "b", SPACE)
SIZE = FIRST + len(PIECES)
GOOD = llama_model(PIECES, trainer(), normalizer())


def read(tmp_path: Path, data: bytes, size: int = SIZE, **companions: Any) -> Any:
    return from_directory(save_model(tmp_path, data, **companions), size)


def test_pieces_scores_and_types_are_those_of_the_file(tmp_path: Path) -> None:
    keys = values(read(tmp_path, GOOD))
    assert keys["ggml.model"] == "llama"
    assert keys["ggml.tokens"] == ["<unk>", "<s>", "</s>", *BYTES, *PIECES]
    assert keys["ggml.scores"] == [0.0] * FIRST + [0.0, -1.0, -2.0, -3.0, -4.0]
    assert keys["ggml.token_type"] == [2, 3, 3, *[6] * 256, *[1] * 5]
    ids = {key: keys[key] for key in keys if key.endswith("token_id")}
    assert ids == {"ggml.bos_token_id": 1, "ggml.eos_token_id": 2, "ggml.unknown_token_id": 0}
    assert keys["ggml.add_space_prefix"] is True
    assert "ggml.merges" not in keys


def test_user_defined_and_unused_pieces_stay_so(tmp_path: Path) -> None:
    data = llama_model(PIECES, piece("<mask>", kind=4), piece("<old>", kind=5), trainer(), normalizer())
    keys = values(read(tmp_path, data, SIZE + 2))
    assert keys["ggml.token_type"][-2:] == [4, 5]


def test_ids_of_roles_are_the_trainers_where_no_other_file_has_them(tmp_path: Path) -> None:
    data = llama_model(PIECES, trainer(unk=3, bos=-1, eos=1, pad=0), normalizer())
    keys = values(read(tmp_path / "alone", data))
    assert {key: keys[key] for key in keys if key.endswith("token_id")} == {
        "ggml.eos_token_id": 1,
        "ggml.unknown_token_id": 3,
        "ggml.padding_token_id": 0,
    }
    keys = values(read(tmp_path / "with", data, config={"eos_token_id": 2}))
    assert keys["ggml.eos_token_id"] == 2


@pytest.mark.parametrize(
    ("dummy_prefix", "stated", "expected"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
def test_space_before_the_text(tmp_path: Path, dummy_prefix: bool, stated: bool | None, expected: bool) -> None:
    data = llama_model(PIECES, trainer(), normalizer(dummy_prefix=dummy_prefix))
    keys = values(read(tmp_path, data, tokenizer_config={"add_prefix_space": stated}))
    assert keys["ggml.add_space_prefix"] is expected


def test_unigram_keeps_its_table_of_replacements(tmp_path: Path) -> None:
    data = b"".join(
        [
            piece("<pad>", kind=3),
            piece("</s>", kind=3),
            piece("<unk>", kind=2),
            piece(f"{SPACE}a", -1.5),
            piece("b", -2.25),
            trainer(1, unk=2, bos=-1, eos=1, pad=0),
            normalizer(charsmap=b"\x04\0\0\0\xff\xfe\0\0a\0", merge_spaces=True),
        ]
    )
    result = read(tmp_path, data, 6)
    keys = values(result)
    assert keys["ggml.model"] == "t5"
    assert keys["ggml.scores"] == [0.0, 0.0, 0.0, -1.5, -2.25, -10000.0]
    assert keys["ggml.precompiled_charsmap"] == list(b"\x04\0\0\0\xff\xfe\0\0a\0")
    assert (keys["ggml.add_space_prefix"], keys["ggml.remove_extra_whitespaces"]) == (True, True)
    assert rules(result) == ["tokenizer-padding"]


def test_added_tokens_of_both_older_files(tmp_path: Path) -> None:
    decoder = {
        "2": {"content": "</s>", "special": True},
        str(SIZE): {"content": "<img>", "special": True},
        str(SIZE + 4): {"content": f"x{SPACE}y", "special": False},
        # in the place of a piece, as fine-tuned models of Llama 2 have it
        str(FIRST + 1): {"content": "<tool>", "special": True},
    }
    companions = {
        "added_tokens": {"<img>": SIZE, "<think>": SIZE + 1},
        "tokenizer_config": {"added_tokens_decoder": decoder},
    }
    result = read(tmp_path, GOOD, SIZE + 6, **companions)
    keys = values(result)
    spots = {i: (keys["ggml.tokens"][i], keys["ggml.token_type"][i], keys["ggml.scores"][i]) for i in range(SIZE + 6)}
    assert spots[2] == ("</s>", 3, -1000.0)
    assert spots[FIRST + 1] == ("<tool>", 3, -1000.0)
    assert spots[SIZE] == ("<img>", 3, -1000.0)
    assert spots[SIZE + 1] == ("<think>", 4, -1000.0)
    assert spots[SIZE + 2] == (f"[PAD{SIZE + 2}]", 5, -10000.0)
    assert spots[SIZE + 4] == ("x y", 4, -1000.0)
    assert rules(result) == ["tokenizer-padding"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (llama_model(PIECES, trainer(), normalizer(merge_spaces=True)), r"joining runs of spaces"),
        (llama_model(PIECES, trainer(), normalizer(charsmap=b"1234567")), r"replacing characters by a table"),
        (llama_model(PIECES, field(2, field(3, 2) + field(24, 1)), normalizer()), r"a space behind the text"),
    ],
)
def test_steps_that_llama_cpp_does_not_take_are_told(tmp_path: Path, data: bytes, words: str) -> None:
    (finding,) = read(tmp_path, data).findings
    assert (finding.rule, finding.severity) == ("tokenizer-preparation", "warning")
    assert words in finding.message


def test_lack_of_bytes_is_told(tmp_path: Path) -> None:
    data = piece("<unk>", kind=2) + piece("a") + piece("<0x41>", kind=6)
    bpe = read(tmp_path / "bpe", data + trainer() + normalizer(), 3)
    assert rules(bpe) == ["tokenizer-bytes"]
    assert "has 1 of 256 byte tokens" in bpe.findings[0].message
    unigram = read(tmp_path / "unigram", data + trainer(1) + normalizer(), 3)
    assert rules(unigram) == ["tokenizer-bytes"]
    assert "no byte tokens in a Unigram" in unigram.findings[0].message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"tokenizer.model is an empty file, not SentencePiece"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", r"is a Git LFS pointer"),
        (GOOD[:-3], r"is no SentencePiece model, or is cut \(a field of"),
        (llama_model(PIECES), r"is cut \(the part behind the pieces is missing\)"),
        (trainer() + normalizer(), r"it holds no pieces"),
        (b"\x0b" + GOOD, r"a field of the unknown kind 3 at byte 0"),
        (b"\x00\x01" + GOOD, r"a field without a number at byte 0"),
        (GOOD + b"\xff" * 11, r"a number without an end"),
        (GOOD + b"\x0a" + varint(1 << 62), r"a field of 4611686018427387904 bytes .* where 0 are left"),
        (llama_model((*PIECES, "ab"), trainer()), rf"the piece 'ab' twice, as {FIRST + 1} and {SIZE}"),
        (llama_model(PIECES, piece("x", kind=9), trainer()), r"piece \d+ \('x'\) has the kind 9"),
        (llama_model(PIECES, piece("x", float("nan")), trainer()), r"has the kind 1 and the score nan"),
        (llama_model(PIECES, field(1, field(1, b"\xff")), trainer()), r"piece \d+ is not UTF-8"),
        (llama_model(PIECES, trainer(3)), r"a SentencePiece model of whole words, .*--target-gguf FILE"),
        (llama_model(PIECES, trainer(4)), r"a SentencePiece model of single characters"),
        (llama_model(PIECES, trainer(7)), r"a SentencePiece model of kind 7"),
        (llama_model(PIECES, trainer(), field(3, field(5, 0))), r"does not write spaces as U\+2581"),
    ],
)
def test_bad_file_is_one_clear_error(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, data, SIZE + 1)


def test_every_cut_is_an_input_error(tmp_path: Path) -> None:
    short = piece("<unk>", kind=2) + piece("a") + trainer() + normalizer(charsmap=b"1234")
    whole = len(short) - len(normalizer(charsmap=b"1234"))
    for end in range(1, len(short)):
        if end != whole:  # without the last part it is a file of defaults
            with pytest.raises(InputError, match="is cut"):
                read(tmp_path, short[:end], 2)


def test_more_pieces_than_the_model_has_rows_are_of_another_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"tokenizer.model has token ids up to {SIZE - 1}, but .* is {SIZE - 1}"):
        read(tmp_path, GOOD, SIZE - 1)


@pytest.mark.parametrize("table", [{"<a>": "5"}, {"<a>": -1}, {"<a>": None}])
def test_bad_added_tokens_are_an_error(tmp_path: Path, table: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"added_tokens.json declares an added token without text or id"):
        read(tmp_path, GOOD, added_tokens=table)


def test_fields_are_read_as_protobuf_writes_them() -> None:
    data = (
        varint(1 << 3) + b"\x96\x01" + varint(2 << 3 | 1) + b"12345678" + field(3, "ab") + field(4, 1.0) + field(5, -1)
    )
    found = [
        (number, value if isinstance(value, int) else bytes(value)) for number, _, value in fields(memoryview(data))
    ]
    assert found == [(1, 150), (2, b"12345678"), (3, b"ab"), (4, b"\0\0\x80?"), (5, (1 << 64) - 1)]
    with pytest.raises(NotProtobuf):
        list(fields(memoryview(data[:-1])))


def test_tokenizer_json_is_taken_first(tmp_path: Path) -> None:
    from tests.tokenizer.making import save, tokenizer

    save(tmp_path, tokenizer(added(260, "<a>")))
    assert values(from_directory(save_model(tmp_path, GOOD), 280))["ggml.model"] == "gpt2"
