from __future__ import annotations

import gguf
import numpy as np
import pytest

from dspark_convert.tensors.dequantise import READABLE, dequantise


@pytest.mark.parametrize("kind", sorted(READABLE - {"F64"}))
def test_random_blocks_as_the_gguf_package_reads_them(kind: str) -> None:
    quant = gguf.GGMLQuantizationType[kind]
    elements, size = gguf.GGML_QUANT_SIZES[quant]
    data = np.random.default_rng(0).integers(0, 256, (400, size), np.uint8)
    with np.errstate(all="ignore"):
        wanted = gguf.quants.dequantize(data, quant).reshape(400, elements)
        found = dequantise(data.tobytes(), kind).reshape(400, elements)
    assert found.dtype == np.float32
    if kind == "MXFP4":  # gguf, as ggml, has no NaN here
        nan = data[:, 0] == 255
        assert nan.any() and np.isnan(found[nan]).all() and not np.isnan(found[~nan]).any()
        found, wanted = found[~nan], wanted[~nan]
    if kind == "NVFP4":
        nan = np.repeat(data[:, :4] & 0x7F == 0x7F, 16, axis=1)
        assert nan.any() and (np.isnan(found) == nan).all()
        found, wanted = found[~nan], wanted[~nan]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_f64() -> None:
    assert dequantise(np.array([1.5, -2.0]).tobytes(), "F64").tolist() == [1.5, -2.0]
