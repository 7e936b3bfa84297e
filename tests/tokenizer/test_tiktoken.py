from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.tokenizer import from_directory
from tests.tokenizer.llama_cpp import in_llama_cpp, write_vocabulary
from tests.tokenizer.making import rules, values

TEXTS = (
    "it's what they'll say: 1234567 apples, don't",
    "  two  spaces   three\n\n\nlines\r\n\t tabs \n x",
    "我想在apple工作1314151天～かな 中文,中文",
    "нещо на български, ünïcode",
    "f(x)[0]=='a'; // comment!!!\n\n  return \"x\"/y;\n",
    "<|im_start|>user[EOT]<think> x",
)
SPECIALS = {300: "[BOS]", 301: "[EOS]", 302: "<|im_start|>", 305: "<think>", 306: "[EOT]"}
SETTINGS = {
    "tokenizer_class": "TikTokenTokenizer",
    "bos_token": "[BOS]",
    "eos_token": "[EOS]",
    "added_tokens_decoder": {str(i): {"content": text, "special": i != 305} for i, text in SPECIALS.items()},
}
CONFIG = {"model_type": "kimi_k2", "eos_token_id": 302}
SIZE = 300 + 300


@pytest.fixture(scope="module")
def trained() -> tuple[list[bytes], list[str], str]:
    """Tokens by rank, merges in the library's spelling, and the tokenizer.json, of a BPE of 300 tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

    from dspark_convert.tokenizer.pre import load_table

    (entry,) = (entry for entry in load_table().entries if entry.name == "kimi-k2")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([word for text in TEXTS for word in text.split()] * 5, trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(entry.steps[0][1]), "isolated"), byte_level]
    )
    for i in range(300, 307):
        text = SPECIALS.get(i, f"<|reserved_token_{i}|>")
        tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False)])
    model = json.loads(tokenizer.to_str())["model"]
    bytes_of = {character: byte for byte, character in _alphabet()}
    tokens = [bytes(bytes_of[c] for c in text) for text in sorted(model["vocab"], key=model["vocab"].__getitem__)]
    return tokens, [" ".join(pair) for pair in model["merges"]], tokenizer.to_str()


def _alphabet() -> list[tuple[int, str]]:
    """Bytes with their characters, asked of the library."""
    from tokenizers.pre_tokenizers import ByteLevel

    pre = ByteLevel(add_prefix_space=False, use_regex=False)
    pairs = [(byte, pre.pre_tokenize_str(chr(byte))[0][0]) for byte in range(0x80)]
    # U+0080 to U+07FF are two bytes: 0xC2 to 0xDF, then 0x80 to 0xBF
    two = [(chr(code).encode(), pre.pre_tokenize_str(chr(code))[0][0]) for code in range(0x80, 0x800)]
    pairs += [(data[i], text[i]) for data, text in two for i in (0, 1)]
    rest = sorted(set(ByteLevel.alphabet()) - {text for _, text in pairs})
    return pairs + list(zip(sorted(set(range(256)) - {byte for byte, _ in pairs}), rest, strict=True))


def save(directory: Path, tokens: list[bytes], **companions: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    lines = (base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    (directory / "tiktoken.model").write_bytes(b"".join(lines))
    for name, content in companions.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return directory


def test_merges_are_those_of_the_training(tmp_path: Path, trained: tuple[list[bytes], list[str], str]) -> None:
    tokens, merges, _ = trained
    result = from_directory(save(tmp_path, tokens, tokenizer_config=SETTINGS, config=CONFIG), SIZE)
    keys = values(result)
    assert (keys["ggml.model"], keys["ggml.pre"]) == ("gpt2", "kimi-k2")
    assert keys["ggml.merges"] == merges
    assert rules(result) == ["tokenizer-padding"]


def test_special_tokens_are_kimis(tmp_path: Path, trained: tuple[list[bytes], list[str], str]) -> None:
    keys = values(from_directory(save(tmp_path, trained[0], tokenizer_config=SETTINGS, config=CONFIG), SIZE))
    texts, types = keys["ggml.tokens"], keys["ggml.token_type"]
    assert set(types[:300]) == {1}
    assert texts[300:308] == [SPECIALS.get(i, f"<|reserved_token_{i}|>") for i in range(300, 308)]
    assert texts[557:559] == ["<|reserved_token_557|>", "[PAD558]"]
    assert types[300:558] == [3] * 258
    assert set(types[558:]) == {5}
    # config.json knows better than the names
    assert (keys["ggml.bos_token_id"], keys["ggml.eos_token_id"]) == (300, 302)


def test_special_tokens_end_with_the_vocabulary(tmp_path: Path, trained: tuple[list[bytes], list[str], str]) -> None:
    keys = values(from_directory(save(tmp_path, trained[0], tokenizer_config=SETTINGS, config=CONFIG), 310))
    assert keys["ggml.tokens"][-1] == "<|reserved_token_309|>"
    assert keys["ggml.token_type"][-1] == 3


def test_llama_cpp_cuts_as_the_tokenizers_library(tmp_path: Path, trained: tuple[list[bytes], list[str], str]) -> None:
    from tokenizers import Tokenizer

    tokens, _, document = trained
    result = from_directory(save(tmp_path, tokens, tokenizer_config=SETTINGS, config=CONFIG), SIZE)
    oracle = Tokenizer.from_str(document)
    path = write_vocabulary(tmp_path / "v.gguf", result.kvs)
    expected = [oracle.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert in_llama_cpp([path], TEXTS) == [expected]


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({"tokenizer_class": "TikTokenTokenizer"}, {"model_type": "deepseek_v3"}),
        ({}, {"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2"}}),
        ({}, {"model_type": "other", "text_config": {"model_type": "kimi_linear"}}),
    ],
)
def test_kimis_models_are_recognised(tmp_path: Path, settings: dict[str, Any], config: dict[str, Any]) -> None:
    directory = save(tmp_path, [bytes([i]) for i in range(256)], tokenizer_config=settings, config=config)
    assert values(from_directory(directory, 300))["ggml.pre"] == "kimi-k2"


def test_tokens_that_would_take_for_ever_are_refused(tmp_path: Path) -> None:
    directory = save(tmp_path, [*(bytes([i]) for i in range(256)), b"a" * 20_000], config=CONFIG)
    with pytest.raises(InputError, match=r"tokens of up to 20000 bytes, too long to find their merges"):
        from_directory(directory, 600)


def test_name_by_hand_is_taken(tmp_path: Path) -> None:
    directory = save(tmp_path, [bytes([i]) for i in range(256)], config=CONFIG)
    assert values(from_directory(directory, 300, pre="gpt-4o"))["ggml.pre"] == "gpt-4o"


def test_other_models_are_refused_by_name(tmp_path: Path) -> None:
    directory = save(tmp_path, [bytes([i]) for i in range(256)], config={"model_type": "llama"})
    with pytest.raises(InputError, match=r"a tiktoken vocabulary of a model other than Kimi.*--target-gguf FILE"):
        from_directory(directory, 300)


BYTES = b"".join(base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"is an empty file, not tiktoken"),
        (BYTES + b"YWI=", r"line 257 is not a new token in base64 with the rank 256"),
        (BYTES + b"YWI= x\n", r"line 257 is not"),
        (BYTES + b"YWI= 257\n", r"line 257 is not"),
        (BYTES + b"YWI 256\n", r"line 257 is not"),
        (BYTES + b"Y%I= 256\n", r"line 257 is not"),
        (BYTES + b"YQ== 256\n", r"line 257 is not"),
        (BYTES + b"YWI= 256 1\n", r"line 257 is not"),
        (BYTES[: BYTES.index(b"YQ==")], r"no token for the byte 97"),
    ],
)
def test_bad_file_is_one_clear_error(tmp_path: Path, data: bytes, message: str) -> None:
    directory = save(tmp_path, [], config=CONFIG)
    (directory / "tiktoken.model").write_bytes(data)
    with pytest.raises(InputError, match=message):
        from_directory(directory, 300)
