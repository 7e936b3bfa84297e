"""A build that keeps its parts in files of their own, with parts missing: which one is said."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault
from tests.libraries.builds import BUILDS, unpack
from tests.libraries.conftest import run
from tests.runtime.pairs import PairFiles

pytestmark = pytest.mark.registry


@pytest.fixture(scope="module")
def whole(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = next(build for build in BUILDS if build.package.name.startswith("@node-llama-cpp"))
    if not build.loads:
        pytest.skip(f"{build.name} needs glibc {build.glibc}")
    return unpack(build, cache, tmp_path_factory.mktemp("whole"))


def part(whole: Path, into: Path, wanted: Callable[[str], bool]) -> Path:
    for path in whole.parent.glob("*.so"):
        if wanted(path.name):
            shutil.copy(path, into)
    return into / whole.name


def test_library_alone(whole: Path, trained: PairFiles, tmp_path: Path) -> None:
    lone = part(whole, tmp_path, lambda name: name == whole.name)
    with pytest.raises(
        EnvironmentFault, match=r"cannot be loaded as a library \(libggml\S*: cannot open shared object"
    ):
        run(trained, trained.draft, lone)


def test_no_backend(whole: Path, trained: PairFiles, tmp_path: Path) -> None:
    bare = part(whole, tmp_path, lambda name: not name.startswith("libggml-cpu"))
    with pytest.raises(EnvironmentFault, match=r"found no backend to compute with \(libggml-cpu\*"):
        run(trained, trained.draft, bare)


def test_ggml_without_llama(whole: Path, trained: PairFiles) -> None:
    with pytest.raises(
        EnvironmentFault, match=r"libggml-base\.so is not a llama\.cpp library .* lacks llama_backend_init"
    ):
        run(trained, trained.draft, whole.with_name("libggml-base.so"))


def test_one_backend_is_enough(whole: Path, trained: PairFiles, tmp_path: Path) -> None:
    """The plainest, which every x86-64 processor can run."""
    enough = part(whole, tmp_path, lambda name: not name.startswith("libggml-cpu") or name == "libggml-cpu-x64.so")
    assert run(trained, trained.draft, enough).passed
    assert run(trained, trained.draft, tmp_path).passed
