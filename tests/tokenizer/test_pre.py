"""Names of pre-tokenizers. Whether a name is right is proven in test_in_llama_cpp.py."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.tokenizer.pre import Entry, load_table
from tests.tokenizer.definitions import definition
from tests.tokenizer.making import BYTES, QWEN2, pre_of, read, rules, save, sequence, split, tokenizer

ENTRIES = load_table().entries
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
WORDS = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
DEEPSEEK = (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", WORDS)
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def name_of(tmp_path: Path, pre_tokenizer: Any, config: dict[str, Any] | None = None, **fields: Any) -> str:
    return pre_of(read(save(tmp_path, tokenizer(pre_tokenizer=pre_tokenizer, **fields), config=config)))


@pytest.mark.parametrize(
    ("pre_tokenizer", "name"),
    [
        (sequence(split(QWEN2), BYTES), "qwen2"),
        (sequence(split(QWEN35), BYTES), "qwen35"),
        (sequence(split(LLAMA3), BYTES), "llama-bpe"),
        (sequence(*map(split, DEEPSEEK), BYTES), "joyai-llm"),
        (GPT2, "gpt-2"),
        (sequence({"type": "Digits", "individual_digits": True}, GPT2), "smollm"),
    ],
)
def test_published_definition_has_its_name(tmp_path: Path, pre_tokenizer: Any, name: str) -> None:
    assert name_of(tmp_path, pre_tokenizer) == name


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        sequence(split(QWEN2, "Removed", invert=True), BYTES),
        sequence(sequence(split(QWEN2)), BYTES),
        sequence(split(QWEN2.replace(r"\r", "\r").replace(r"\n", "\n")), {**BYTES, "trim_offsets": True}),
    ],
    ids=["all but matches removed", "nested", "raw line breaks"],
)
def test_other_spellings_of_the_same_steps_have_the_same_name(tmp_path: Path, pre_tokenizer: Any) -> None:
    assert name_of(tmp_path, pre_tokenizer) == "qwen2"


@pytest.mark.parametrize("normalizer", [None, {"type": "NFC"}, {"type": "Sequence", "normalizers": []}])
def test_normalizers_without_effect_on_the_name(tmp_path: Path, normalizer: Any) -> None:
    assert name_of(tmp_path, sequence(split(QWEN2), BYTES), normalizer=normalizer) == "qwen2"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model_type": "llama"}, "llama-bpe"),
        ({"model_type": "glm4_moe"}, "glm4"),
        ({"model_type": "lfm2"}, "lfm2"),
        ({"model_type": "lfm2_vl_x", "text_config": {"model_type": "lfm2"}}, "lfm2"),
        (None, "llama-bpe"),
    ],
)
def test_one_definition_with_several_names_is_decided_by_the_model_type(
    tmp_path: Path, config: dict[str, Any] | None, name: str
) -> None:
    assert name_of(tmp_path, sequence(split(LLAMA3), BYTES), config) == name


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"pre_tokenizer": sequence(split(r"\w+|\W+"), BYTES)}, r"Split on the regex \w+|\W+, then ByteLevel)"),
        ({"pre_tokenizer": sequence(split(QWEN2))}, f"Split on the regex {QWEN2})"),
        ({"pre_tokenizer": sequence(split(QWEN2, "MergedWithNext"), BYTES)}, "behavior 'MergedWithNext'"),
        ({"pre_tokenizer": {**GPT2, "add_prefix_space": True}}, "ByteLevel (add_prefix_space True)"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}}}, "Split (pattern {'String': ' '})"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "seen: Whitespace)"),
        ({"pre_tokenizer": None}, "no steps at all"),
        ({"normalizer": {"type": "Lowercase"}}, "seen: Lowercase, then Split on the regex"),
    ],
)
def test_unknown_definition_is_shown_with_the_ways_out(tmp_path: Path, fields: dict[str, Any], seen: str) -> None:
    directory = save(tmp_path, tokenizer(**fields))
    with pytest.raises(InputError) as caught:
        read(directory)
    assert seen in str(caught.value)
    assert "--tokenizer-pre NAME" in str(caught.value)
    assert "--target-gguf FILE" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("qwen2", []),
        ("kormo", []),  # llama.cpp splits alike under this name
        ("llama-bpe", ["tokenizer-pre-differs"]),
        ("qwenn2", ["tokenizer-pre-unknown"]),
    ],
)
def test_name_given_by_hand_is_written_and_judged(tmp_path: Path, given: str, told: list[str]) -> None:
    result = read(save(tmp_path, tokenizer()), pre=given)
    assert pre_of(result) == given
    assert [rule for rule in rules(result) if rule.startswith("tokenizer-pre")] == told


def test_name_given_by_hand_helps_with_an_unknown_definition(tmp_path: Path) -> None:
    result = read(save(tmp_path, tokenizer(pre_tokenizer=sequence(split("x"), BYTES))), pre="mpt")
    assert (pre_of(result), rules(result)) == ("mpt", ["tokenizer-padding"])


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.name}-{entry.models}")
def test_table_is_sound(tmp_path: Path, entry: Entry) -> None:
    from tokenizers import Tokenizer

    document = tokenizer(pre_tokenizer=definition(entry))
    config = {"model_type": entry.model_types[0]} if entry.model_types else None
    directory = save(tmp_path, document, config=config)
    # The tokenizers library compiles every regex, and loses no character of a text.
    text = "It's 12345 ünïcode 中文かな, don't!\r\n\n  x\t(y)"
    pieces = Tokenizer.from_file(str(directory / "tokenizer.json")).pre_tokenizer.pre_tokenize_str(text)
    assert pieces[0][1][0] == 0
    assert pieces[-1][1][1] == len(text)
    assert all(left[1][1] == right[1][0] for left, right in pairwise(pieces))
    assert pre_of(read(directory)) == entry.name
    assert {entry.name, *entry.like} <= load_table().llama_cpp_names


def test_no_definition_has_two_names_without_a_model_type_to_decide() -> None:
    general = [entry.steps for entry in ENTRIES if not entry.model_types]
    assert len(set(general)) == len(general)
