"""Whole tokenizers of Qwen3 and DeepSeek, against what llama.cpp's own converter makes of them.

The digests were got once, in an environment with transformers 5.24, by running llama.cpp's
``TextModel._set_vocab_gpt2`` (conversion/base.py of llama-cpp-python 0.3.36) on the same files and
hashing every tokenizer.* key and value as it stands in the GGUF.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.tokenizer import from_directory
from tests.tokenizer.llama_cpp import in_llama_cpp, write_vocabulary
from tests.tokenizer.making import encoded, pre_of, values

#: The text that llama.cpp's converter encodes to recognise a pre-tokenizer.
CHECK_TEXT = (
    "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n🚀 (normal) 😶\u200d🌫️ (multiple emojis concatenated) ✅ 🦙🦙"
    " 3 33 333 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 កាន់តែពិសេសអាច😁 ?我想在apple工作1314151天～"
    " ------======= нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? I've been 'told he's there, 'RE you sure?"
    " 'M not sure I'll make it, 'D you like some tea? We'Ve a'lL"
)
#: Its table: sha256 of the list of token ids, written as Python does -> name.
HASHES = {
    "e636dc30a262dcc0d8c323492e32ae2b70728f4df7dfe9737d9f920a282b8aea": "qwen2",  # Qwen1.5 to Qwen3
    "b4b8ca1f9769494fbd956ebc4c249de6131fb277a4a3345a7a92c7dd7a55808d": "joyai-llm",  # JoyAI-LLM and DeepSeek
}


@dataclass(frozen=True)
class Known:
    digest: str
    padding: int
    vocab_size: int
    spots: dict[int, tuple[str, int]]
    ids: dict[str, int]


KNOWN = {
    "qwen3": Known(
        digest="70dc8351c44192486e726a689b1caf407bceb51603858c93482d3e59bbc70cb4",
        padding=267,
        vocab_size=151936,
        spots={
            0: ("!", 1),
            151643: ("<|endoftext|>", 3),
            151657: ("<tool_call>", 4),
            151668: ("</think>", 4),
            151669: ("[PAD151669]", 5),  # DeepSpec's mask
        },
        ids={"bos": 151643, "eos": 151645, "padding": 151643},
    ),
    "deepseek_v3": Known(
        digest="11c5a67488ccc9d3894454ee86074392cec6258725a297d8955d0b79f39ea583",
        padding=465,
        vocab_size=129280,
        spots={
            0: ("<｜begin▁of▁sentence｜>", 3),
            3: ("!", 1),
            128799: ("<｜place▁holder▁no▁799｜>", 3),  # the mask
            128814: ("<｜tool▁sep｜>", 3),
            129279: ("[PAD129279]", 5),
        },
        ids={"bos": 0, "eos": 1, "padding": 1},
    ),
    "deepseek_v4_dir": Known(
        digest="08e022e46ac22aa028fb9f554b76e4a0bc0ecb7773d98bfdb7ea2c526f7d3ed1",
        padding=0,
        vocab_size=129280,
        spots={0: ("<｜begin▁of▁sentence｜>", 3), 129279: ("<｜image｜>", 3)},
        ids={"bos": 0, "eos": 1, "padding": 1},
    ),
}

each = pytest.mark.parametrize(
    "name",
    [
        pytest.param("qwen3", marks=pytest.mark.registry),
        pytest.param("deepseek_v3", marks=pytest.mark.registry),
        "deepseek_v4_dir",
    ],
)


@pytest.fixture
def directory(name: str, request: pytest.FixtureRequest) -> Path:
    found = request.getfixturevalue(name)
    assert isinstance(found, Path)
    return found


@each
def test_every_key_is_what_llama_cpps_converter_writes(name: str, directory: Path) -> None:
    known = KNOWN[name]
    result = from_directory(directory, known.vocab_size)
    keys = values(result)
    texts, types = keys["ggml.tokens"], keys["ggml.token_type"]
    assert {i: (texts[i], types[i]) for i in known.spots} == known.spots
    assert {role: keys[f"ggml.{role}_token_id"] for role in known.ids} == known.ids
    assert (len(texts), types.count(5)) == (known.vocab_size, known.padding)
    assert hashlib.sha256(encoded(result.kvs)).hexdigest() == known.digest


@each
def test_name_is_the_one_of_the_token_hash(name: str, directory: Path) -> None:
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(directory / "tokenizer.json")).encode(CHECK_TEXT).ids
    by_hash = HASHES[hashlib.sha256(str(ids).encode()).hexdigest()]
    assert pre_of(from_directory(directory, KNOWN[name].vocab_size)) == by_hash


@each
def test_llama_cpp_tokenizes_as_the_tokenizers_library(name: str, directory: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    texts = [CHECK_TEXT, "<think>\nx = 1\n</think><|im_start|>a<｜User｜>b<｜tool▁sep｜> <tool_call>{}</tool_call>"]
    oracle = Tokenizer.from_file(str(directory / "tokenizer.json"))
    expected = [oracle.encode(text, add_special_tokens=False).ids for text in texts]
    path = write_vocabulary(tmp_path / "v.gguf", from_directory(directory, KNOWN[name].vocab_size).kvs)
    assert in_llama_cpp([path], texts) == [expected]


@each
def test_merges_ids_and_template_agree_with_gguf_py(name: str, directory: Path) -> None:
    import gguf

    oracle = gguf.SpecialVocab(directory, load_merges=True)
    keys = values(from_directory(directory, KNOWN[name].vocab_size))
    short = {"pad": "padding", "unk": "unknown", "sep": "seperator"}
    assert keys["ggml.merges"] == oracle.merges
    assert keys.get("chat_template") == oracle.chat_template
    ours = {key: value for key, value in keys.items() if key.endswith("token_id")}
    assert ours == {f"ggml.{short.get(k, k)}_token_id": v for k, v in oracle.special_token_ids.items()}


@each
def test_reading_takes_well_under_a_second(name: str, directory: Path) -> None:
    spent = []
    for _ in range(2):
        start = time.process_time()
        from_directory(directory, KNOWN[name].vocab_size)
        spent.append(time.process_time() - start)
    assert min(spent) < 1.0


def test_vocab_size_below_the_tokenizers_ids_is_told_with_both_numbers(deepseek_v4_dir: Path) -> None:
    from dspark_convert.errors import InputError

    with pytest.raises(InputError, match=r"ids up to 129279, but the model's vocab_size is 129000"):
        from_directory(deepseek_v4_dir, 129000)


def test_without_template_only_the_template_goes(deepseek_v4_dir: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = json.loads((deepseek_v4_dir / "tokenizer_config.json").read_text(encoding="utf-8"))
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).symlink_to(deepseek_v4_dir / name)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": "{{ messages }}"}))
    with_template = from_directory(tmp_path, 129280)
    assert with_template.kvs[-1].value == "{{ messages }}"
    assert from_directory(tmp_path, 129280, chat_template=False).kvs == with_template.kvs[:-1]
