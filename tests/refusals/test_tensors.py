"""Tensors that are missing, extra, misshapen, quantised or not finite (failures.md 1c, 2a)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import ABSENT, Pair, Tensor, read_tensors, write_tensors
from tests.conftest import Convert
from tests.refusals.case import Case, both, check_refused, config, poke, put, tensors, without

LAYER = (
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)
PROJECTIONS = {"q": 128, "k": 64, "v": 64, "o": 128}
W1, W2 = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"
CONFIDENCE = "confidence_head.proj.weight"
ONE, NAN, INFINITY = b"\x80\x3f", b"\xc0\x7f", b"\x80\x7f"


def layer(number: int) -> list[str]:
    return [f"layers.{number}.{name}.weight" for name in LAYER]


def biases(fill: bytes) -> Any:
    return tensors(
        *(
            put(f"layers.{i}.self_attn.{p}_proj.bias", "BF16", size, fill=fill)
            for i in range(3)
            for p, size in PROJECTIONS.items()
        )
    )


def renamed(old: str, new: str, dtype: str, *shape: int) -> Any:
    return tensors(without(old), put(new, dtype, *shape))


def all_missing(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple(("tensor-missing", name) for name in names)


def padded_twice(pair: Pair) -> None:
    """A further copy of norm.weight under the other spelling."""
    pair.tensors(lambda t: t.update({"model.norm.weight": t["norm.weight"]}))


def every_layer(dtype: str) -> Any:
    def change(tensors: dict[str, Tensor]) -> None:
        for name, (_, shape, data) in list(tensors.items()):
            if name.startswith("layers.") and len(shape) == 2:
                tensors[name] = Tensor(dtype, shape, data[: len(data) // 2])

    return tensors(change)


PACKED = "layers.1.mlp.up_proj.weight_packed"
Q_PROJ = "layers.0.self_attn.q_proj"

CASES = [
    Case(
        "D33 biases",
        both(config(attention_bias=True), biases(ONE)),
        tuple(("tensor-unsupported", f"layers.{i}.self_attn.{p}_proj.bias") for i in range(3) for p in PROJECTIONS),
        ("attention biases",),
    ),
    Case(
        "D35 gated attention",
        tensors(put("layers.0.self_attn.gate_proj.weight", "BF16", 128, 128)),
        (("tensor-unsupported", "layers.0.self_attn.gate_proj.weight"),),
        ("gate",),
    ),
    Case(
        "D15 a gate that the config hides",
        tensors(put("markov_head.gate.weight", "BF16", 16, 128)),
        (("tensor-unsupported", "markov_head.gate.weight"),),
        ("gated", "vanilla"),
    ),
    Case(
        "D15 a recurrent head",
        tensors(put("markov_head.joint_proj.weight", "BF16", 48, 160)),
        (("tensor-unsupported", "markov_head.joint_proj.weight"),),
        ("rnn", "vanilla"),
    ),
    Case(
        "D39 both spellings",
        padded_twice,
        (("tensor-duplicate", "norm.weight"),),
        ("'norm.weight'", "'model.norm.weight'"),
    ),
    Case("D40 a layer", tensors(without(*layer(2))), all_missing(*layer(2))),
    Case(
        "D40 all layers",
        tensors(*(without(*layer(i)) for i in range(3))),
        all_missing(*layer(0), *layer(1)[:9], layer(1)[9]),
        ("13 further", "layers.2.mlp.down_proj.weight"),
    ),
    Case("D40 one half of the Markov head", tensors(without(W2)), all_missing(W2)),
    Case("D40 Markov head lost", tensors(without(W1, W2)), all_missing(W1, W2)),
    Case(
        "D40 Markov head lost, and no rank",
        both(config(markov_rank=ABSENT), tensors(without(W1, W2))),
        (("tensor-shape", CONFIDENCE),),
        ("[1, 144]", "[1, 128]"),
    ),
    Case(
        "D40 rank 0 beside a Markov head",
        config(markov_rank=0),
        (("tensor-unexpected", W1), ("tensor-unexpected", W2), ("tensor-shape", CONFIDENCE)),
        ("markov_rank > 0",),
    ),
    Case(
        "D40 confidence head lost", tensors(without(CONFIDENCE, "confidence_head.proj.bias")), all_missing(CONFIDENCE)
    ),
    Case(
        "confidence head that the config denies",
        config(enable_confidence_head=False),
        (("tensor-unexpected", CONFIDENCE), ("tensor-unexpected", "confidence_head.proj.bias")),
    ),
    Case(
        "D40 a layer more than the config",
        config(num_hidden_layers=2, layer_types=["full_attention"] * 2),
        tuple(("tensor-unknown", name) for name in layer(2)),
    ),
    Case(
        "D41 hidden size",
        config(hidden_size=160),
        (
            *(
                ("tensor-shape", name)
                for name in (
                    "embed_tokens.weight",
                    "lm_head.weight",
                    "fc.weight",
                    "hidden_norm.weight",
                    "norm.weight",
                    CONFIDENCE,
                )
            ),
            *(
                ("tensor-shape", name)
                for i in range(3)
                for name in layer(i)
                if "self_attn.q_n" not in name and "self_attn.k_n" not in name
            ),
            ("target-hidden-size", "hidden_size"),
        ),
        ("[128, 384]", "[160, 480]"),
    ),
    Case(
        "D41 rank",
        config(markov_rank=8),
        (("tensor-shape", W1), ("tensor-shape", W2), ("tensor-shape", CONFIDENCE)),
        ("[512, 16]", "[512, 8]", "[1, 136]"),
    ),
    Case(
        "D41 confidence width",
        tensors(put(CONFIDENCE, "BF16", 1, 128)),
        (("tensor-shape", CONFIDENCE),),
        ("[1, 128]", "[1, 144]"),
    ),
    Case(
        "D41 confidence width against the config",
        config(confidence_head_with_markov=False),
        (("tensor-shape", CONFIDENCE),),
        ("[1, 144]", "[1, 128]"),
    ),
    Case(
        "D41 transposed",
        tensors(put("layers.1.mlp.down_proj.weight", "BF16", 256, 128)),
        (("tensor-shape", "layers.1.mlp.down_proj.weight"),),
        ("[256, 128]", "[128, 256]"),
    ),
    Case("a scalar", tensors(put("norm.weight", "BF16")), (("tensor-shape", "norm.weight"),), ("[]", "[128]")),
    Case("tables without rows", tensors(put("lm_head.weight", "BF16", 0, 128)), (("tensor-shape", "lm_head.weight"),)),
    Case(
        "unknown tensor",
        tensors(put("layers.0.mlp.frob.weight", "BF16", 3, 5)),
        (("tensor-unknown", "layers.0.mlp.frob.weight"),),
        ("[3, 5]",),
    ),
    Case(
        "no layer of this number",
        tensors(put("layers.7.input_layernorm.weight", "BF16", 128)),
        (("tensor-unknown", "layers.7.input_layernorm.weight"),),
    ),
    Case(
        "30 unknown tensors",
        tensors(*(put(f"x{i:02d}.weight", "BF16", 1) for i in range(30))),
        tuple(("tensor-unknown", f"x{i:02d}.weight") for i in range(21)),
        ("10 further", "x29.weight"),
    ),
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
        tuple(("tensor-dtype", n) for i in range(3) for n in layer(i) if "norm" not in n),
        ("unquantised",),
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
    Case(
        "include: embeddings alone",
        tensors(without("lm_head.weight")),
        (("shared-incomplete", "embed_tokens.weight"),),
        ("both or neither",),
        ("--shared-tensors", "include"),
    ),
    Case(
        "include: neither there",
        tensors(without("lm_head.weight", "embed_tokens.weight")),
        (("shared-incomplete", "neither"),),
        (),
        ("--shared-tensors", "include"),
    ),
    Case(
        "include in the early dialect",
        lambda _: None,
        (("shared-dialect", "embed_tokens.weight, lm_head.weight"),),
        ("omit",),
        ("--shared-tensors", "include", "--dialect", "dspark"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_refused(case: Case, pair: Pair, convert: Convert) -> None:
    check_refused(case, pair, convert)


def converted(pair: Pair, convert: Convert, *args: str) -> dict[str, Any]:
    ended = convert(pair.draft, "--target-model-dir", pair.target, "-o", "out.gguf", "--json", *args)
    assert ended.code == 0, ended.told
    assert Path("out.gguf").is_file()
    return ended.document


def test_biases_of_zeros_are_dropped_with_a_note(pair: Pair, convert: Convert) -> None:
    both(config(attention_bias=True), biases(b"\0\0"))(pair)
    document = converted(pair, convert, "--strict")
    notes = [f for f in document["findings"] if f["rule"] == "tensor-dropped"]
    assert len(notes) == 12
    assert all(f["severity"] == "info" and "all zeros" in f["message"] for f in notes)
    assert len(document["plan"]["tensors"]) == 40


def test_without_a_confidence_head_the_flag_is_false(pair: Pair, convert: Convert) -> None:
    pair.tensors(without(CONFIDENCE, "confidence_head.proj.bias"))
    pair.config({"enable_confidence_head": False})
    metadata = converted(pair, convert)["plan"]["metadata"]
    assert metadata["dflash.has_confidence_head"] is metadata["dspark.has_confidence_head"] is False
    # the same where the config says nothing at all
    pair.config({"enable_confidence_head": ABSENT, "confidence_head_with_markov": ABSENT})
    assert converted(pair, convert, "--force")["plan"]["metadata"] == metadata


def test_prefixed_and_flat_names_give_the_same_file(pair: Pair, convert: Convert) -> None:
    first = converted(pair, convert)["output"]["sha256"]
    named = {f"model.{name}": tensor for name, tensor in read_tensors(pair.shard).items()}
    named["lm_head.weight"] = named.pop("model.lm_head.weight")
    write_tensors(pair.shard, named)
    assert converted(pair, convert, "--force")["output"]["sha256"] == first


def test_inverse_frequencies_are_dropped(pair: Pair, convert: Convert) -> None:
    pair.tensors(put("layers.0.self_attn.rotary_emb.inv_freq", "F32", 16))
    document = converted(pair, convert)
    assert [f["where"] for f in document["findings"] if f["rule"] == "tensor-dropped"] == [
        "layers.0.self_attn.rotary_emb.inv_freq"
    ]


def test_a_value_that_bf16_holds_is_no_fault_without_f16(pair: Pair, convert: Convert) -> None:
    pair.tensors(poke(W2, 17, struct.pack("<H", 0x4790)))
    converted(pair, convert, "--outtype", "bf16")


def test_borrowed_tables_are_not_searched_for_nan(pair: Pair, convert: Convert) -> None:
    pair.tensors(poke("embed_tokens.weight", 9 * 128 + 1, NAN))
    pair.tensors(poke("model.embed_tokens.weight", 9 * 128 + 1, NAN), "target")
    converted(pair, convert)
    case = Case(
        "",
        lambda _: None,
        (("non-finite-values", "embed_tokens.weight"),),
        ("flat index 1153",),
        ("--shared-tensors", "include"),
    )
    check_refused(case, pair, convert)
