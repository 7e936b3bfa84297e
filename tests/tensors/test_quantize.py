from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.ggufio.types import GGMLType, tensor_nbytes
from dspark_convert.tensors.quantize import F16_SCALES, NEED_LIBRARY, WRITABLE, f16_scales, quantize
from tests.tensors.ggml import chunk

VALUES = np.random.default_rng(0).standard_normal((3, 512), np.float32)


@pytest.mark.parametrize("kind", sorted(WRITABLE))
def test_every_writable_type_has_the_bytes_of_ggml(kind: GGMLType) -> None:
    data = quantize(VALUES, kind)
    assert data.dtype == np.uint8 and data.shape == (tensor_nbytes(kind, (512, 3)),)
    np.testing.assert_array_equal(data, chunk(VALUES, kind))
    out = np.empty_like(data)
    assert np.shares_memory(quantize(VALUES, kind, out), out)
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("kind", sorted(WRITABLE))
def test_one_row(kind: GGMLType) -> None:
    row = np.ascontiguousarray(VALUES[1:2, :256])
    np.testing.assert_array_equal(quantize(row, kind), chunk(row, kind))


def test_which_types_need_a_library() -> None:
    ours = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "MXFP4"}
    assert {kind.name for kind in WRITABLE - NEED_LIBRARY} == ours
    with pytest.raises(EnvironmentFault, match=r"nothing\.so: cannot be used"):
        quantize(VALUES, GGMLType.Q4_K, library=Path("nothing.so"))


@pytest.mark.parametrize("kind", sorted(F16_SCALES))
def test_scales_are_what_scales_the_values(kind: GGMLType) -> None:
    """Twice the scales (and minima) in place, and every value is twice as large."""
    data = quantize(VALUES, kind)
    scales = f16_scales(data, kind)
    size = data.size // len(scales)
    doubled = data.reshape(-1, size).copy()
    for index, offset in enumerate(F16_SCALES[kind]):
        doubled[:, offset : offset + 2] = (2 * scales[:, index]).view(np.uint8).reshape(-1, 2)
    quant = gguf.GGMLQuantizationType[kind.name]
    before, after = (gguf.quants.dequantize(blocks.reshape(3, -1), quant) for blocks in (data, doubled))
    np.testing.assert_array_equal(after, 2 * before)
    assert before.any()
