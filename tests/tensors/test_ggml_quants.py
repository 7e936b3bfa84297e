"""ggml's quantiser behind our checks: its bytes, its threads, and what never reaches it."""

from __future__ import annotations

import ctypes
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.native import LIBRARY_VARIABLE
from dspark_convert.tensors import ggml_quants
from dspark_convert.tensors.dequantise import dequantise
from dspark_convert.tensors.ggml_quants import TYPES, find_library, quantize
from dspark_convert.tensors.quantize import f16_scales
from tests.tensors.ggml import chunk

VALUES = np.random.default_rng(0).standard_normal((64, 512), np.float32)


def packaged(package: str, pattern: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob(pattern))


@pytest.fixture(params=["libggml", "xllamacpp"])
def library(request: pytest.FixtureRequest) -> Path:
    return packaged(
        *{"libggml": ("libggml", "lib*/libggml-base.so"), "xllamacpp": ("xllamacpp", "*.so")}[request.param]
    )


@pytest.mark.parametrize("kind", TYPES)
def test_each_library_gives_the_same_bytes_and_gguf_reads_them(library: Path, kind: GGMLType) -> None:
    data = quantize(VALUES, kind, library)
    np.testing.assert_array_equal(data, chunk(VALUES, kind))
    read = gguf.quants.dequantize(data.reshape(len(VALUES), -1), gguf.GGMLQuantizationType[kind.name])
    assert 0 < np.sqrt(np.square(read - VALUES).mean()) < TYPES[kind]


@pytest.mark.parametrize("kind", [GGMLType.Q4_1, GGMLType.Q5_1])
def test_gguf_has_the_same_bytes_where_it_can_quantise(kind: GGMLType) -> None:
    theirs = gguf.quants.quantize(VALUES, gguf.GGMLQuantizationType[kind.name])
    np.testing.assert_array_equal(quantize(VALUES, kind, find_library()), theirs.reshape(-1))


@pytest.mark.parametrize("kind", TYPES)
def test_rows_in_threads_give_the_same_bytes(kind: GGMLType) -> None:
    values = np.random.default_rng(1).standard_normal((96, 512), np.float32)
    whole = quantize(values, kind, find_library())
    parts = np.split(values, 48)
    out = np.empty_like(whole)

    def one(index: int) -> None:
        quantize(parts[index], kind, find_library(), np.split(out, 48)[index])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(48)))
    np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e10, -1e20, 3e38])
def test_the_scales_tell_of_a_bad_value(kind: GGMLType, bad: float) -> None:
    values = VALUES.copy()
    values[5, 100] = bad
    data = quantize(values, kind, find_library())
    assert np.isnan(values[5, 100]) == np.isnan(bad)  # the input is left alone
    elements = BLOCKS[kind][0]
    dirty = ~np.isfinite(f16_scales(data, kind)).all(axis=1)
    assert np.flatnonzero(dirty).tolist() == [(5 * 512 + 100) // elements]
    if np.isnan(bad):
        assert np.isnan(f16_scales(data, kind)).any()
    sound = np.arange(64) != 5
    size = BLOCKS[kind][1] * 512 // elements
    np.testing.assert_array_equal(data.reshape(64, size)[sound], chunk(VALUES, kind).reshape(64, size)[sound])


@pytest.mark.parametrize("kind", [GGMLType.Q3_K, GGMLType.Q6_K, GGMLType.IQ4_XS])
def test_ggml_itself_loses_an_infinity(kind: GGMLType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason for the guard: without it the block looks sound."""
    values = VALUES.copy()
    values[5, 100] = np.inf
    monkeypatch.setattr(ggml_quants, "LARGEST", np.float32(np.inf))
    assert np.isfinite(f16_scales(quantize(values, kind, find_library()), kind)).all()


@pytest.mark.parametrize("kind", TYPES)
def test_zeros_are_zero(kind: GGMLType) -> None:
    data = quantize(np.zeros((2, 256), np.float32), kind, find_library())
    assert not dequantise(data.data, kind.name).any()


def test_rows_that_are_apart_in_memory() -> None:
    np.testing.assert_array_equal(
        quantize(VALUES[::2], GGMLType.Q4_K, find_library()), chunk(VALUES[::2].copy(), GGMLType.Q4_K)
    )


def test_rows_that_are_no_whole_blocks_never_reach_ggml() -> None:
    with pytest.raises(ValueError, match="Q4_K needs rows that are a multiple of 256, not 384"):
        quantize(np.zeros((2, 384), np.float32), GGMLType.Q4_K, find_library())


def test_no_rows() -> None:
    assert quantize(np.zeros((0, 256), np.float32), GGMLType.Q4_K, find_library()).size == 0


def pretend(monkeypatch: pytest.MonkeyPatch, made: GGMLType) -> None:
    """A library whose types have other numbers."""
    real = ctypes.CDLL(str(find_library())).ggml_quantize_chunk
    real.restype = ctypes.c_size_t
    real.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]

    class Function(SimpleNamespace):
        def __call__(self, _: int, *rest: int) -> int:
            return int(real(int(made), *rest))

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(ggml_quantize_chunk=Function()))


@pytest.mark.parametrize(
    ("kind", "made"),
    [(GGMLType.Q4_1, GGMLType.MXFP4), (GGMLType.IQ4_XS, GGMLType.IQ4_NL), (GGMLType.Q5_K, GGMLType.Q4_K)],
)
def test_another_size_is_refused(kind: GGMLType, made: GGMLType, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, made)
    with pytest.raises(EnvironmentFault, match=rf"ggml wrote \d+ bytes of {kind.name} where \d+ were due\."):
        quantize(VALUES, kind, Path("other-size.so"))


def test_blocks_of_another_type_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, GGMLType.Q4_0)  # as many bytes as IQ4_NL, other values
    with pytest.raises(EnvironmentFault, match=r"other-type\.so: its ggml does not quantise to IQ4_NL"):
        quantize(VALUES, GGMLType.IQ4_NL, Path("other-type.so"))


def test_what_is_no_ggml_library(tmp_path: Path) -> None:
    text = tmp_path / "libggml-base.so"
    text.write_text("no library")
    with pytest.raises(EnvironmentFault, match=r"libggml-base\.so: cannot be used to quantise: .*\.$"):
        quantize(VALUES, GGMLType.Q4_K, text)
    with pytest.raises(EnvironmentFault, match=r"cannot be used to quantise: .*ggml_quantize_chunk"):
        quantize(VALUES, GGMLType.Q4_K, packaged("numpy", "_core/_multiarray_umath*.so"))


def test_the_library_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build" / "bin").mkdir(parents=True)
    file = tmp_path / "build" / "bin" / "libggml-base.so"
    file.write_bytes(b"")
    assert find_library(tmp_path) == find_library(file) == file
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path))
    assert find_library() == file
    with pytest.raises(EnvironmentFault, match="there is no ggml library here"):
        find_library(tmp_path / "elsewhere")


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentFault, match="pip install libggml-python"):
        find_library()
