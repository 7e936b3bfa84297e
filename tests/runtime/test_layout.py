"""Struct layouts against bytes that real libraries gave, and against structs laid out by hand."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.layout import (
    CONTEXT_LAYOUTS,
    MODEL_LAYOUTS,
    PROBE_BYTES,
    Defaults,
    Layout,
    detect,
    read_defaults,
)

#: what llama_model_default_params and llama_context_default_params of xllamacpp builds left in memory
#: filled with 0xAA, printed by a C-like dump; "aa" bytes are the padding that they did not write
RECORDED: dict[str, tuple[str, str, str, str]] = {
    "b10229": (
        "B",
        (
            "00000000000000000000000000000000ffffffff01000000010000000000000000000000000000000000000000000000"
            "00000000000000000000000000000000000001000000aaaa"
        ),
        "A",
        (
            "000200000008000000020000010000000000000000000000040000000400000000000000ffffffffffffffffffffffff"
            "ffffffff0000000000000000000080bf000080bf000080bf000080bf00000000000080bfaaaaaaaa0000000000000000"
            "000000000000000001000000010000000000000000000000000000000000000000010101"
            "0100aaaa000000000000000000000000000000000000000000000000"
        ),
    ),
    "b10566": (
        "B",
        (
            "00000000000000000000000000000000ffffffff01000000ffffffff0000000000000000000000000000000000000000"
            "00000000000000000000000000000000000001000000aaaa"
        ),
        "B",
        (
            "00020000000800000002000001000000000000000000000001000000040000000400000000000000ffffffffffffffff"
            "ffffffffffffffff0000000000000000000080bf000080bf000080bf000080bf00000000000080bf0000000000000000"
            "000000000000000001000000010000000000000000000000000000000000000000010101"
            "0100aaaa000000000000000000000000000000000000000000000000"
        ),
    ),
    "b11549": (
        "C",
        (
            "00000000000000000000000000000000ffffffff01000000ffffffff0100000000000000aaaaaaaa0000000000000000"
            "000000000000000000000000000000000000000000000000000001000000aaaa"
        ),
        "C",
        (
            "00020000000800000002000001000000000000000000000001000000040000000400000000000000ffffffffffffffff"
            "ffffffffffffffff0000000000000000000080bf000080bf000080bf000080bf00000000000080bf0000000000000000"
            "000000000000000001000000010000000000000000000000000000000000000000000000000000000001010101"
            "00aaaa000000000000000000000000000000000000000000000000"
        ),
    ),
}

#: b10069's model params: three bools for the ways of mapping; written by hand from its llama.h
MODEL_A = struct.pack("=QQiii4xQQQQ8?", 0, 0, 999, 1, 0, 0, 0, 0, 0, *(0, 1, 0, 0, 0, 1, 0, 0))


def as_defaults(data: bytes, padding: bytes = b"\xaa") -> Defaults:
    """Bytes as a library leaves them; runs of ``padding`` count as not written."""
    written = [True] * len(data) + [False] * (PROBE_BYTES - len(data))
    for start in range(0, len(data), 2):
        if data[start : start + 2] == padding * 2:
            written[start : start + 2] = [False, False]
    return Defaults(data.ljust(PROBE_BYTES, b"\xaa"), tuple(written))


@pytest.mark.parametrize("build", RECORDED)
@pytest.mark.parametrize("prepared", [True, False])
def test_recorded_builds(build: str, prepared: bool) -> None:
    model, model_bytes, context, context_bytes = RECORDED[build]
    for layouts, name, data in ((MODEL_LAYOUTS, model, model_bytes), (CONTEXT_LAYOUTS, context, context_bytes)):
        defaults = as_defaults(bytes.fromhex(data))
        if not prepared:  # a machine on which the memory cannot be filled before
            defaults = Defaults(defaults.data, None)
        assert detect(layouts, defaults, "lib").name == name


def test_model_params_of_b10069() -> None:
    written = (True,) * 28 + (False,) * 4 + (True,) * 40 + (False,) * (PROBE_BYTES - 72)
    assert detect(MODEL_LAYOUTS, Defaults(MODEL_A.ljust(PROBE_BYTES, b"\xaa"), written), "lib").name == "A"


@pytest.mark.parametrize(
    ("layouts", "name", "size", "last", "offset"),
    [
        (MODEL_LAYOUTS, "A", 72, "no_alloc", 71),
        (MODEL_LAYOUTS, "B", 72, "load_mtp", 69),
        (MODEL_LAYOUTS, "C", 80, "load_mtp", 77),
        (CONTEXT_LAYOUTS, "A", 160, "ctx_other", 152),
        (CONTEXT_LAYOUTS, "B", 160, "ctx_other", 152),
        (CONTEXT_LAYOUTS, "C", 168, "ctx_other", 160),
    ],
)
def test_sizes(layouts: tuple[Layout, ...], name: str, size: int, last: str, offset: int) -> None:
    layout = next(layout for layout in layouts if layout.name == name)
    made: Any = layout.ctype()
    assert (ctypes.sizeof(made), layout.fields[-1].name, getattr(made, last).offset) == (size, last, offset)
    assert len(CONTEXT_LAYOUTS[0].fields) == 36


def context_of(build: str) -> bytes:
    return bytes.fromhex(RECORDED[build][3])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(context_of("b11549") + bytes(8), id="a field more at the end"),
        pytest.param(context_of("b10566")[:-8], id="a field less at the end"),
        pytest.param(bytes(4) + context_of("b11549"), id="a field more at the beginning"),
        pytest.param(
            context_of("b11549").replace(struct.pack("<I", 2048), struct.pack("<I", 4096)), id="another default"
        ),
        pytest.param(b"", id="nothing"),
        pytest.param(bytes(168), id="zeros"),
    ],
)
def test_unknown_layout_is_refused(data: bytes) -> None:
    with pytest.raises(EnvironmentFault, match=r"/lib/libllama\.so lays out llama_context_params .* none fits"):
        detect(CONTEXT_LAYOUTS, as_defaults(data), "/lib/libllama.so")


def test_two_fitting_layouts_are_refused() -> None:
    defaults = as_defaults(context_of("b11549"))
    with pytest.raises(EnvironmentFault, match="2 layouts fit"):
        detect((CONTEXT_LAYOUTS[2], CONTEXT_LAYOUTS[2]), defaults, "lib")


def test_bool_that_is_no_bool_does_not_fit() -> None:
    data = bytearray(context_of("b11549"))
    data[137] = 0x7F  # offload_kqv
    with pytest.raises(EnvironmentFault):
        detect(CONTEXT_LAYOUTS, as_defaults(bytes(data)), "lib")


class FakeLibrary:
    """Stands in for a ctypes library: a function that returns a struct through a hidden pointer."""

    def __init__(self, data: bytes, padding: range) -> None:
        def fill(address: int) -> int:
            for start, stop in ((0, padding.start), (padding.stop, len(data))):
                ctypes.memmove(address + start, data[start:stop], stop - start)
            return address

        self._fill = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(fill)

    def __getitem__(self, name: str) -> Any:
        assert name == "llama_model_default_params"
        return self._fill


def test_bytes_that_agree_in_both_fillings_are_the_written_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    library: Any = FakeLibrary(MODEL_A, range(28, 32))
    defaults = read_defaults(library, "llama_model_default_params")
    assert defaults.data[:28] + defaults.data[32:72] == MODEL_A[:28] + MODEL_A[32:]
    assert defaults.written == (True,) * 28 + (False,) * 4 + (True,) * 40 + (False,) * (PROBE_BYTES - 72)
