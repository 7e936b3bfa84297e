"""Where a library is looked for, and what is said if there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import dspark_convert.runtime.library as library_module
from dspark_convert.errors import EnvironmentFault, UsageError
from dspark_convert.runtime.library import find_library


def test_installed_xllamacpp_is_found_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSPARK_LLAMA_LIB", raising=False)
    found = find_library()
    assert found.path.name.startswith("xllamacpp")
    assert found.path.is_file()
    assert found.source.startswith("xllamacpp 20")
    assert "xllamacpp" not in sys.modules


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    "place",
    [
        "libllama.so",
        "lib/libllama.so",
        "build/bin/libllama.so",
        "lib/libllama.so.0",
        "libllama.v0.5.0.so",
        "xllamacpp.abi3.so",
    ],
)
def test_directory_is_searched(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "_FILE_NAMES", library_module._LINUX_NAMES)
    touch(tmp_path / "libllama-common.so")
    library = touch(tmp_path / place)
    assert find_library(tmp_path).path == library.resolve()
    assert find_library(library).source == "--lib"


def test_flag_beats_variable_beats_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag, variable = touch(tmp_path / "a.so"), touch(tmp_path / "b.so")
    monkeypatch.setenv("DSPARK_LLAMA_LIB", str(variable))
    assert find_library(flag).path == flag.resolve()
    found = find_library()
    assert (found.path, found.source) == (variable.resolve(), "DSPARK_LLAMA_LIB")


@pytest.mark.usefixtures("no_library")
def test_llama_cpp_python_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_convert.runtime.library._FILE_NAMES", ("libllama.so",))
    library = touch(tmp_path / "llama_cpp" / "lib" / "libllama.so")

    class Spec:
        submodule_search_locations = (str(library.parents[1]),)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec if name == "llama_cpp" else None)
    found = find_library()
    assert found.path == library.resolve()
    assert found.source == "llama-cpp-python (version unknown)"


@pytest.mark.usefixtures("no_library")
def test_system_library_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspark_convert.runtime.library._FILE_NAMES", ("libllama.so",))
    library = touch(tmp_path / "nothing" / "libllama.so")
    assert find_library().path == library.resolve()


@pytest.mark.usefixtures("no_library")
def test_library_known_to_the_linker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.util.find_library", lambda name: f"lib{name}.so.0")
    assert find_library().path == Path("libllama.so.0")


@pytest.mark.usefixtures("no_library")
def test_no_library_says_where_it_looked_and_what_to_do() -> None:
    with pytest.raises(EnvironmentFault) as fault:
        find_library()
    for part in (
        "DSPARK_LLAMA_LIB",
        "xllamacpp",
        "llama-cpp-python",
        "system",
        "pip install 'dspark-convert[validate]'",
        "--lib",
    ):
        assert part in str(fault.value)


def test_wrong_names_are_errors_of_who_gave_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="--lib: there is no file or directory"):
        find_library(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"holds no llama\.cpp library"):
        find_library(tmp_path)
    monkeypatch.setenv("DSPARK_LLAMA_LIB", str(tmp_path / "nothing"))
    with pytest.raises(EnvironmentFault, match="DSPARK_LLAMA_LIB: there is no"):
        find_library()
