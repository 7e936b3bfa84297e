"""The proof: with the name that was recognised, llama.cpp tokenizes as the tokenizers library does.

For each definition in the table a small BPE is trained without any splitting, so that its merges
run across words, digits and lines, and only the pre-tokenizer keeps them apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.tokenizer import from_directory
from dspark_convert.tokenizer.pre import Entry, load_table
from tests.tokenizer.definitions import definition
from tests.tokenizer.llama_cpp import in_llama_cpp, write_vocabulary
from tests.tokenizer.making import added, save, tokenizer

ENTRIES = load_table().entries

MARKS = "कान e\u0301 ಠ_ಠ"
CASES = "HTTPServer XMLHttpRequest camelCase ÀÉÎ"
TEXTS = (
    "It's what they'll say: I'VE 1234567 apples, don't you'd?",
    "  two  spaces   three\n\n\nlines\r\n\t tabs \n x",
    "我想在apple工作1314151天～かなカナ 中文,中文",
    "нещо на Български, ünïcode Straße Über",
    "f(x)[0]=='a'; // comment!!! ???\n\n  return \"x\"/y;\n",
    "<|im_start|>user",
    MARKS,
    "ab12cd 3.14 1,000,000 $5",
    CASES,
    "   ",
    "a\n",
    "\n\n\n",
    "x \n \n y",
)
#: llama.cpp looks whole pieces up before merging under these names, and so do their tokenizers
LOOKUP_FIRST = ("llama-bpe", "glm4", "lfm2")
#: llama.cpp knows no combining marks (\p{M}) for these, and no upper case for Kimi: the names are right all the same
DIFFERING = {"gpt-4o": [MARKS], "tekken": [MARKS], "kimi-k2": [MARKS, CASES]}


@pytest.fixture(scope="module")
def across() -> dict[str, Any]:
    """A BPE model whose merges cross every boundary."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    trained.train_from_iterator(TEXTS * 20, trainer)
    model = json.loads(trained.to_str())["model"]
    assert isinstance(model, dict)
    return model


def document(model: dict[str, Any], entry: Entry) -> dict[str, Any]:
    return tokenizer(
        added(len(model["vocab"]), "<|im_start|>", special=True),
        pre_tokenizer=definition(entry),
        model__vocab=model["vocab"],
        model__merges=model["merges"],
        model__ignore_merges=entry.name in LOOKUP_FIRST,
    )


def test_llama_cpp_tokenizes_as_hugging_face_does(across: dict[str, Any], tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    paths, expected = [], []
    for number, entry in enumerate(ENTRIES):
        config = {"model_type": entry.model_types[0]} if entry.model_types else None
        directory = save(tmp_path / str(number), document(across, entry), config=config)
        result = from_directory(directory, len(across["vocab"]) + 5)
        paths.append(write_vocabulary(tmp_path / f"{number}.gguf", result.kvs))
        oracle = Tokenizer.from_file(str(directory / "tokenizer.json"))
        expected.append([oracle.encode(text, add_special_tokens=False).ids for text in TEXTS])
    for entry, got, want in zip(ENTRIES, in_llama_cpp(paths, TEXTS), expected, strict=True):
        assert got is not None, f"llama.cpp refused {entry.name}"
        differing = [text for text, a, b in zip(TEXTS, got, want, strict=True) if a != b]
        assert differing == DIFFERING.get(entry.name, []), entry.name


def test_the_proof_would_notice_a_wrong_name(across: dict[str, Any], tmp_path: Path) -> None:
    right = {entry.name: entry for entry in ENTRIES}
    directory = save(tmp_path, document(across, right["qwen2"]))
    names = ["qwen2", "qwen35", "llama-bpe", "joyai-llm", "gpt-4o", "tekken", "gpt-2", "smollm", "deepseek-coder"]
    paths = [
        write_vocabulary(tmp_path / f"{name}.gguf", from_directory(directory, len(across["vocab"]) + 5, pre=name).kvs)
        for name in names
    ]
    qwen2, *others = in_llama_cpp(paths, TEXTS)
    assert [name for name, got in zip(names[1:], others, strict=True) if got == qwen2] == []


def test_list_of_names_is_llama_cpps(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer())
    names = sorted(load_table().llama_cpp_names)
    results = {name: from_directory(directory, 280, pre=name) for name in [*names, "qwenn2"]}
    paths = [write_vocabulary(tmp_path / f"{name}.gguf", result.kvs) for name, result in results.items()]
    loaded = in_llama_cpp(paths, [])
    assert [name for name, got in zip(results, loaded, strict=True) if got is None] == ["qwenn2"]
