from __future__ import annotations

import gguf
import numpy as np
import pytest

from dspark_convert.tensors.dequantise import READABLE, dequantise


@pytest.mark.parametrize("kind", sorted(READABLE - {"F64"}))
def test_random_blocks_as_the_gguf_package_reads_them(kind: str) -> None:
    quant = gguf.GGMLQuantizationType[kind]
    _, size = gguf.GGML_QUANT_SIZES[quant]
    data = np.random.default_rng(0).integers(0, 256, (50, size * 8), np.uint8)
    with np.errstate(all="ignore"):
        wanted = gguf.quants.dequantize(data, quant).reshape(-1)
        found = dequantise(data.tobytes(), kind)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_f64() -> None:
    assert dequantise(np.array([1.5, -2.0]).tobytes(), "F64").tolist() == [1.5, -2.0]
