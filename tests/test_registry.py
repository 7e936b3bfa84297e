"""What a fetching test says when it cannot fetch: it fails, in words, and never passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.libraries.builds import BUILDS
from tests.registry import NpmPackage, Wheel, npm_tarball, pypi_wheel

WHEEL = next(build.package for build in BUILDS if isinstance(build.package, Wheel))
PACKAGE = next(build.package for build in BUILDS if isinstance(build.package, NpmPackage))


def test_no_network_for_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        pytest.fail.Exception, match=r"pip could not fetch xllamacpp \(.*-m 'not registry' goes without"
    ):
        pypi_wheel(WHEEL, tmp_path)


def test_no_network_for_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_offline", "true")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "empty"))
    with pytest.raises(pytest.fail.Exception, match="npm could not fetch @node-llama-cpp/linux-x64"):
        npm_tarball(PACKAGE, tmp_path)


def test_no_pip_and_no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(pytest.fail.Exception, match="pip is needed to fetch xllamacpp; without it deselect"):
        pypi_wheel(WHEEL, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="npm is needed to fetch @node-llama-cpp/linux-x64; without it"):
        npm_tarball(PACKAGE, tmp_path)


def test_another_file_than_the_recorded_one_is_thrown_away(tmp_path: Path) -> None:
    paths = [tmp_path / package.file for package in (WHEEL, PACKAGE)]
    for path in paths:
        path.write_bytes(b"something else")
    with pytest.raises(pytest.fail.Exception, match=r"whl is not the file that was recorded"):
        pypi_wheel(WHEEL, tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"tgz is not the file that was recorded"):
        npm_tarball(PACKAGE, tmp_path)
    assert not any(path.exists() for path in paths)


def test_recorded_file_is_taken(tmp_path: Path) -> None:
    """sha256 and sha512 of the three bytes "abc", as the standards give them."""
    wheel = replace(WHEEL, sha256="ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    (tmp_path / wheel.file).write_bytes(b"abc")
    assert pypi_wheel(wheel, tmp_path) == tmp_path / wheel.file
    package = replace(
        PACKAGE, sha512="3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw=="
    )
    (tmp_path / package.file).write_bytes(b"abc")
    assert npm_tarball(package, tmp_path) == tmp_path / package.file
