"""Weights that are packed, quantised, NaN, infinite or too large for the output (failures.md 1e, 2a)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import Pair, Tensor
from tests.conftest import Convert
from tests.refusals.case import Case, both, check_refused, config, poke, put, tensors, without

W2 = "markov_head.markov_w2.weight"
CONFIDENCE = "confidence_head.proj.weight"
NAN, INFINITY = b"\xc0\x7f", b"\x80\x7f"
MATRICES = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
PACKED = "layers.1.mlp.up_proj.weight_packed"
Q_PROJ = "layers.0.self_attn.q_proj"


def renamed(old: str, new: str, dtype: str, *shape: int) -> Any:
    return tensors(without(old), put(new, dtype, *shape))


def every_layer(dtype: str) -> Any:
    def change(tensors: dict[str, Tensor]) -> None:
        for name, (_, shape, data) in list(tensors.items()):
            if name.startswith("layers.") and len(shape) == 2:
                tensors[name] = Tensor(dtype, shape, data[: len(data) // 2])

    return tensors(change)


CASES = [
    Case(
        "D66 packed",
        both(
            config(quantization_config={"quant_method": "compressed-tensors"}),
            renamed("layers.1.mlp.up_proj.weight", PACKED, "I32", 256, 16),
        ),
        (("tensor-missing", "layers.1.mlp.up_proj.weight"), ("tensor-unsupported", PACKED)),
        ("packed or quantised", "compressed-tensors"),
    ),
    Case(
        "G11 GPTQ",
        renamed(f"{Q_PROJ}.weight", f"{Q_PROJ}.qweight", "I32", 16, 128),
        (("tensor-missing", f"{Q_PROJ}.weight"), ("tensor-unsupported", f"{Q_PROJ}.qweight")),
        ("packed or quantised",),
    ),
    Case(
        "G11 int8",
        both(config(quantization_config={"quant_method": "quanto"}), tensors(put(f"{Q_PROJ}.weight", "I8", 128, 128))),
        (("tensor-dtype", f"{Q_PROJ}.weight"),),
        ("I8", "'quanto'", "BF16"),
    ),
    Case(
        "FP8 with scales",
        tensors(put(f"{Q_PROJ}.weight", "F8_E4M3", 128, 128), put(f"{Q_PROJ}.weight_scale_inv", "F32", 1, 1)),
        (("tensor-dtype", f"{Q_PROJ}.weight"), ("tensor-unsupported", f"{Q_PROJ}.weight_scale_inv")),
        ("F8_E4M3",),
    ),
    Case(
        "all layers in FP8",
        every_layer("F8_E4M3"),
        (("tensor-dtype", "layers.0.self_attn.q_proj.weight"),),
        (f"q_proj.weight and {3 * len(MATRICES) - 1} more are F8_E4M3", "unquantised"),
    ),
    Case(
        "G13 NaN",
        tensors(poke("layers.0.mlp.up_proj.weight", 1234, NAN)),
        (("non-finite-values", "layers.0.mlp.up_proj.weight"),),
        ("flat index 1234", "1 of 32768"),
    ),
    Case(
        "G13 infinite norm",
        tensors(poke("layers.2.input_layernorm.weight", 5, INFINITY)),
        (("non-finite-values", "layers.2.input_layernorm.weight"),),
        ("flat index 5", "1 of 128"),
    ),
    Case(
        "G13 NaN in a padded row",
        both(
            config(confidence_head_with_markov=False),
            tensors(put(CONFIDENCE, "BF16", 1, 128), poke(CONFIDENCE, 127, NAN)),
        ),
        (("non-finite-values", CONFIDENCE),),
        ("flat index 127", "1 of 128"),
    ),
    Case(
        "G12 too large for F16",
        tensors(poke(W2, 17, struct.pack("<H", 0x4790))),
        (("f16-overflow", W2),),
        ("flat index 17", "73728", "bf16"),
        ("--outtype", "f16"),
    ),
    Case(
        "G12 too large for Q8_0",
        tensors(poke("fc.weight", 40, struct.pack("<H", 0x4B00))),
        (("f16-overflow", "fc.weight"),),
        ("flat index 40", "8.38861e+06"),
        ("--outtype", "q8_0"),
    ),
    Case(
        "G12 and G13 together",
        tensors(poke(W2, 17, struct.pack("<H", 0x4790)), poke("norm.weight", 0, NAN)),
        (("f16-overflow", W2), ("non-finite-values", "norm.weight")),
        (),
        ("--outtype", "f16"),
    ),
    Case(
        "G13 --strict", tensors(poke("norm.weight", 3, NAN)), (("non-finite-values", "norm.weight"),), (), ("--strict",)
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refused(case: Case, pair: Pair, convert: Convert) -> None:
    check_refused(case, pair, convert)


def accepted(pair: Pair, convert: Convert, *args: str) -> None:
    assert convert(pair.draft, "--target-model-dir", pair.target, "-o", "out.gguf", *args).code == 0
    assert Path("out.gguf").is_file()


def test_a_value_that_bf16_holds_is_no_fault_without_f16(pair: Pair, convert: Convert) -> None:
    pair.tensors(poke(W2, 17, struct.pack("<H", 0x4790)))
    accepted(pair, convert, "--outtype", "bf16")


def test_borrowed_tables_are_not_searched_for_nan(pair: Pair, convert: Convert) -> None:
    pair.tensors(poke("embed_tokens.weight", 9 * 128 + 1, NAN))
    pair.tensors(poke("model.embed_tokens.weight", 9 * 128 + 1, NAN), "target")
    accepted(pair, convert)
    case = Case(
        "",
        lambda _: None,
        (("non-finite-values", "embed_tokens.weight"),),
        ("flat index 1153",),
        ("--shared-tensors", "include"),
    )
    check_refused(case, pair, convert)
