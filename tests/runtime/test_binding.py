"""Libraries that lack something, played by an object with the symbols that each one has."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.binding import EXTENDED, GRAPH, PUBLIC, Llama, _open

NEEDED = [*PUBLIC, *(mangled for mangled, *_ in EXTENDED.values())]


class Library:
    """A stand-in for ctypes.CDLL: attribute and item access to plain functions."""

    def __init__(self, **functions: Any) -> None:
        self.__dict__.update(functions)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]


class Function:
    """A foreign function that returns ``values`` one call after the other and notes its arguments."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> int | None:
        self.calls.append(args)
        return self.values.pop(0) if self.values else None


def llama_on(**functions: Any) -> Any:
    llama = Llama.__new__(Llama)
    llama.path = Path("/lib/libllama.so")
    llama._cdll = Library(**functions)  # type: ignore[assignment]
    return llama


def test_all_functions_are_bound_with_their_types() -> None:
    functions = {name: Function() for name in NEEDED}
    llama = llama_on(**functions)
    llama._bind()
    assert llama.llama_get_embeddings_nextn is functions["_Z26llama_get_embeddings_nextnP13llama_context"]
    assert llama.llama_n_ctx.restype is ctypes.c_uint32
    with pytest.raises(AttributeError, match="llama_quantize is not among"):
        llama.llama_quantize()


@pytest.mark.parametrize("lost", ["", *GRAPH])
def test_a_build_may_keep_its_graph_to_itself(lost: str) -> None:
    llama = llama_on(**{name: Function() for name in (*NEEDED, *GRAPH) if name != lost})
    llama._bind()
    assert llama.shows_graph is not bool(lost)
    if not lost:
        assert llama.ggml_nbytes.restype is ctypes.c_size_t


def test_library_without_dspark_is_told_by_the_missing_functions() -> None:
    lost = "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"
    llama = llama_on(**{name: Function() for name in NEEDED if name != lost})
    with pytest.raises(EnvironmentFault) as fault:
        llama._bind()
    assert "too old for DSpark" in str(fault.value)
    assert "it lacks llama_set_embeddings_layer_inp;" in str(fault.value)
    assert "pip install 'dspark-convert[validate]'" in str(fault.value)


def test_library_that_is_no_llama_cpp_is_told() -> None:
    llama = llama_on(**{name: Function() for name in NEEDED if name != "llama_decode"})
    with pytest.raises(EnvironmentFault, match=r"is not a llama\.cpp library .* it lacks llama_decode;"):
        llama._bind()


def test_backends_in_files_of_their_own_are_loaded_from_beside_the_library() -> None:
    load = Function()
    llama = llama_on(ggml_backend_dev_count=Function(0, 1, 1), ggml_backend_load_all_from_path=load)
    llama.llama_backend_init = Function()
    llama._init_backends()
    assert load.calls == [(b"/lib",)]


def test_backends_that_are_built_in_are_not_loaded_again() -> None:
    load = Function()
    llama = llama_on(ggml_backend_dev_count=Function(1, 1, 1), ggml_backend_load_all_from_path=load)
    llama.llama_backend_init = Function()
    llama._init_backends()
    assert load.calls == []


def test_library_without_any_backend_is_told() -> None:
    llama = llama_on(ggml_backend_dev_count=Function(0, 0, 0), ggml_backend_load_all=Function())
    llama.llama_backend_init = Function()
    with pytest.raises(EnvironmentFault, match="found no backend"):
        llama._init_backends()


def test_libraries_beside_are_loaded_first_where_the_loader_does_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"libllama.so": "libggml.so", "libggml.so": "libggml-cpu.so", "libggml-cpu.so": "libggml-x.so"}
    loaded: list[str] = []

    def load(path: str, mode: int = 0) -> Library:
        name = Path(path).name
        if needs.get(name, name) not in (name, *loaded):
            raise OSError(f"{needs[name]}: cannot open shared object file")
        loaded.append(name)
        return Library(mode=mode)

    for name in (*needs, "libggml-x.so"):
        (tmp_path / name).touch()
    monkeypatch.setattr("ctypes.CDLL", load)
    monkeypatch.setattr("sys.platform", "linux")
    assert isinstance(_open(tmp_path / "libllama.so"), Library)
    assert loaded == ["libggml-x.so", "libggml-cpu.so", "libggml.so", "libllama.so"]
    loaded.clear()
    (tmp_path / "libggml-x.so").unlink()
    with pytest.raises(EnvironmentFault, match=r"libllama\.so cannot be loaded .*libggml\.so: cannot open"):
        _open(tmp_path / "libllama.so")


def test_library_that_only_the_linker_knows_loads_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "libggml.so").touch()
    asked: list[str] = []

    def load(path: str, mode: int = 0) -> Library:
        asked.append(path)
        raise OSError(f"no {path} in mode {mode}")

    monkeypatch.setattr("ctypes.CDLL", load)
    with pytest.raises(EnvironmentFault):
        _open(Path("libllama.so.0"))
    assert set(asked) == {"libllama.so.0"}
    load_backends = Function()
    llama = llama_on(ggml_backend_dev_count=Function(0, 0, 1, 1), ggml_backend_load_all_from_path=load_backends)
    llama.path = Path("libllama.so.0")
    llama.llama_backend_init = Function()
    llama._init_backends()
    assert load_backends.calls == []
