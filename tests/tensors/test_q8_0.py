"""Q8_0 against gguf-py and against ggml's own quantiser, which runs in a child process."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import gguf
import numpy as np
import pytest

from dspark_convert.tensors.q8_0 import STEP, quantize, quantize_bf16, scales

GGML = """
import ctypes, importlib.util, pathlib, sys
import numpy as np
package = pathlib.Path(importlib.util.find_spec("xllamacpp").origin).parent
quantize = ctypes.CDLL(str(next(package.glob("xllamacpp*.so")))).ggml_quantize_chunk
quantize.restype = ctypes.c_size_t
quantize.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
values = np.frombuffer(sys.stdin.buffer.read(), np.float32)
out = np.empty(values.size // 32 * 34, np.uint8)
assert quantize(8, values.ctypes.data, out.ctypes.data, 0, values.size // 32, 32, None) == out.size
sys.stdout.buffer.write(out.tobytes())
"""


def ties() -> np.ndarray:
    """Blocks whose 1/d is a power of two, so that x/d hits k + 1/2 exactly."""
    rng = np.random.default_rng(4)
    values = rng.integers(-127, 127, (4000, 32)) + 0.5
    values[:, 0] = 127
    return values * 2.0 ** rng.integers(-20, 15, (4000, 1))


def near_ties() -> np.ndarray:
    """The 40 float32 on either side of every tie, with d = 1."""
    middles = (np.arange(-127, 127) + np.float32(0.5)).astype(np.float32).view(np.int32)
    values = (middles[:, None] + np.arange(-40, 41)).reshape(-1).astype(np.int32).view(np.float32)
    values = np.resize(values, (-(-values.size // 31), 31))
    return np.hstack([np.full((len(values), 1), 127, np.float32), values])


def any_bits() -> np.ndarray:
    """Every finite magnitude there is, all in one block, and blocks of one magnitude each."""
    rng = np.random.default_rng(5)
    signs = rng.integers(0, 2, (8000, 32)) << 31
    mixed = rng.integers(0, 0x7F800000, (4000, 32))
    alike = (np.arange(4000) * 0x7F800000 // 4000)[:, None] + rng.integers(0, 0x3FFF, (4000, 32))
    magnitudes = np.minimum(np.concatenate([mixed, alike]), 0x7F7FFFFF)
    return (signs | magnitudes).astype(np.uint32).view(np.float32)


def normal(scale: float) -> np.ndarray:
    return np.random.default_rng(6).standard_normal((4000, 32)) * scale


CASES = {
    "small": normal(1e-3),
    "large": normal(1e3),
    "huge, some scales infinite": normal(3e6),
    "around the smallest scale": normal(2.0**-24 * 127),
    "around 1/d overflowing": normal(2.0**-121),
    "subnormal": normal(2.0**-140),
    "zeros of both signs": np.array([0.0, -0.0] * 32),
    "ties": ties(),
    "near ties": near_ties(),
    "any bits": any_bits(),
}


@pytest.fixture(scope="module")
def ggml() -> dict[str, bytes]:
    """What ggml makes of each case."""
    arrays = [values.astype(np.float32).reshape(-1) for values in CASES.values()]
    child = subprocess.run(
        [sys.executable, "-c", GGML], input=np.concatenate(arrays).tobytes(), capture_output=True, check=True
    )
    ends = np.cumsum([array.size // 32 * 34 for array in arrays])
    return {case: child.stdout[end - a.size // 32 * 34 : end] for case, a, end in zip(CASES, arrays, ends, strict=True)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:gguf")
def test_same_bytes_as_gguf_and_ggml(case: str, ggml: dict[str, bytes]) -> None:
    values = CASES[case].astype(np.float32).reshape(-1, 32)
    ours = quantize(values.reshape(-1))
    theirs = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(ours.reshape(-1, 34), theirs.reshape(-1, 34))
    np.testing.assert_array_equal(ours, np.frombuffer(ggml[case], np.uint8))


def test_a_block_by_hand() -> None:
    values = np.zeros(32, np.float32)
    values[:6] = [127, -127, 0.5, -0.5, 1.5, 0.49999997]
    expected = bytes([0x00, 0x3C, 127, 256 - 127, 1, 255, 2, 0]) + bytes(26)  # d = 1.0
    assert quantize(values).tobytes() == expected


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf, 127 * 65520.0])
@pytest.mark.parametrize("place", [0, 1, 31])
def test_the_scale_tells_of_a_bad_value(bad: float, place: int) -> None:
    values = np.ones(96, np.float32)
    values[32 + place] = bad
    np.testing.assert_array_equal(np.isfinite(scales(quantize(values))), [True, False, True])


def test_no_values() -> None:
    assert quantize(np.empty(0, np.float32)).size == 0


@pytest.mark.parametrize("case", CASES)
def test_bf16_gives_the_bytes_of_its_float32(case: str) -> None:
    bits = (CASES[case].astype(np.float32).reshape(-1).view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(quantize_bf16(bits), quantize((bits.astype(np.uint32) << 16).view(np.float32)))


def test_more_than_a_step_into_a_buffer() -> None:
    values = np.random.default_rng(7).standard_normal(2 * STEP + 96, np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    pieces = np.array_split(values.reshape(-1, 32), 5)
    expected = np.concatenate([quantize(piece.reshape(-1)) for piece in pieces])
    before = values.copy()
    out = np.empty_like(expected)
    assert np.shares_memory(quantize(values, out), out)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(values, before)
    assert np.shares_memory(quantize_bf16(bits, out), out)
    np.testing.assert_array_equal(out, quantize((bits.astype(np.uint32) << 16).view(np.float32)))


def test_threads_do_not_share_buffers() -> None:
    values = np.random.default_rng(8).standard_normal((64, 4096), np.float32)
    expected = [quantize(row) for row in values]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for found, wanted in zip(pool.map(quantize, values), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)
