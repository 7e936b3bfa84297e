from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark_convert.errors import InputError
from tests.tokenizer.making import pre_of, read, save, tokenizer


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer(), {})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).write_bytes(b"\xef\xbb\xbf" + (directory / name).read_bytes())
    assert pre_of(read(directory)) == "qwen2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"tokenizer.json is not valid JSON: .* line 1, column 2"),
        (b"[]", r"tokenizer.json holds a JSON list, expected an object"),
        (b"\xff\xfe", r"tokenizer.json is not UTF-8"),
        (b"", r"tokenizer.json is an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", r"tokenizer.json is a Git LFS pointer"),
        (b'{"model": ' + b"[" * 5000 + b"]" * 5000 + b"}", r"nests"),
    ],
)
def test_no_json_object_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read(tmp_path)


def test_broken_companion_is_named(tmp_path: Path) -> None:
    directory = save(tmp_path, tokenizer())
    (directory / "tokenizer_config.json").write_text("{,}")
    with pytest.raises(InputError, match=r"tokenizer_config.json is not valid JSON"):
        read(directory)


def test_missing_tokenizer_tells_what_is_there(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / f"model-{i}.safetensors").touch()
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert "no tokenizer.json" in str(caught.value)
    assert "model-0.safetensors, model-1.safetensors" in str(caught.value)
    assert "and 2 more" in str(caught.value)
    assert "--target-gguf FILE" in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["Qwen3DSparkModel"]},
        {"architectures": ["DFlashDraftModel"]},
        {"markov_rank": 256},
        {"dflash_config": {}},
    ],
)
def test_draft_in_place_of_the_target_is_suspected(tmp_path: Path, config: dict[str, object]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"config.json is that of a draft; were the draft and the target .* swapped"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "tekken.json",
            r"holds a Mistral tekken vocabulary \(tekken.json\), which is not read here, and no tokenizer.json",
        ),
        ("vocab.json", r"in the old form .*save_pretrained"),
    ],
)
def test_other_form_of_tokenizer_is_named_with_the_way_out(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=words + r".*--target-gguf FILE"):
        read(tmp_path)


def test_missing_directory_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere cannot be read: No such file or directory"):
        read(tmp_path / "nowhere")
