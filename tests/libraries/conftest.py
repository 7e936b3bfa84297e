"""The trained pair and the libraries, fetched and unpacked one at a time."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.validation import read_prompts, validate
from fixtures import train_pair
from tests.libraries.builds import LOADING, Build, discard, unpack
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, make_random_pair, write_gguf

ROOT = Path(train_pair.__file__).with_name("pair")
PROMPTS = read_prompts(ROOT / "prompts.txt")[:4]
MAX_TOKENS = 40


@dataclass(frozen=True)
class Unpacked:
    """``directory`` is what the package would add to site-packages."""

    build: Build
    directory: Path

    @property
    def library(self) -> Path:
        return self.directory / self.build.library


@pytest.fixture(scope="session")
def cache(request: pytest.FixtureRequest) -> Path:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the libraries that are fetched are for x86-64 Linux")
    assert request.config.cache is not None
    return request.config.cache.mkdir("libraries")


@pytest.fixture(scope="module", params=LOADING, ids=lambda build: build.name)
def unpacked(
    request: pytest.FixtureRequest, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Unpacked]:
    directory = tmp_path_factory.mktemp("library")
    unpack(request.param, cache, directory)
    yield Unpacked(request.param, directory)
    discard(directory)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return write_gguf(tmp_path_factory.mktemp("trained"), ROOT / "target", ROOT / "draft")


@pytest.fixture(scope="session")
def one_tap(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return make_random_pair(tmp_path_factory.mktemp("one-tap"), target_layer_ids=(1,))


@pytest.fixture(scope="session")
def bonus(trained: PairFiles) -> Path:
    """The trained draft, said to be a bonus-anchor one."""

    def change(want: Expected) -> None:
        want.kv["dflash.sample_from_anchor"] = ("BOOL", False)

    return trained.broken("bonus", change)


def run(pair: PairFiles, draft: Path, library: Path | None = None, *, server: bool = False) -> ValidationReport:
    return validate(draft, pair.target, lib=library, server=server, prompts=PROMPTS, max_tokens=MAX_TOKENS, timeout=120)


@pytest.fixture(scope="session")
def installed(trained: PairFiles) -> ValidationReport:
    """What the installed library makes of the pair."""
    report = run(trained, trained.draft)
    assert report.passed, report.checks
    return report


@pytest.fixture(scope="session")
def installed_bonus(trained: PairFiles, bonus: Path) -> ValidationReport:
    return run(trained, bonus)
