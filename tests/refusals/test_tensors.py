"""Tensors that are missing, extra, unknown or misshapen (failures.md 1c)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import ABSENT, Pair, Tensor, read_tensors, write_tensors
from tests.conftest import Convert
from tests.refusals.case import Case, Damage, both, check_refused, config, put, tensors, without

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
ONE = b"\x80\x3f"


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


def all_missing(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple(("tensor-missing", name) for name in names)


def both_spellings(pair: Pair) -> None:
    """A further copy of norm.weight under the other spelling."""
    pair.tensors(lambda t: t.update({"model.norm.weight": t["norm.weight"]}))


def draft_of(count: int) -> Damage:
    """Heads of so many tokens."""
    heads = put("lm_head.weight", "BF16", count, 128), put("markov_head.markov_w2.weight", "BF16", count, 16)
    return both(config(draft_vocab_size=count), tensors(*heads))


def table(rule: str, *ids: int, absolute: bool = False) -> Case:
    """A table of ``ids``, which are written as they are or as offsets."""
    values = [token if absolute else token - i for i, token in enumerate(ids)]
    data = struct.pack(f"<{len(ids)}q", *values)
    damage = both(draft_of(len(ids)), tensors(lambda t: t.update(d2t=Tensor("I64", (len(ids),), data))))
    return Case(f"D29 {rule} {ids}"[:50], damage, ((rule, "d2t"),))


CASES = [
    Case(
        "D33 biases",
        both(config(attention_bias=True), biases(ONE)),
        (("tensor-unsupported", "layers.0.self_attn.q_proj.bias"),),
        (f"q_proj.bias and {3 * len(PROJECTIONS) - 1} more cannot be converted", "attention biases"),
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
        both_spellings,
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
    table("d2t-range", 7, 8, 512),
    table("d2t-range", -1, 8, 9),
    table("d2t-duplicate", 7, 8, 8),
    table("d2t-absolute", *range(490, 510), absolute=True),
    Case(
        "D29 ids are integers",
        both(draft_of(20), tensors(put("d2t", "F32", 20))),
        (("tensor-dtype", "d2t"),),
        ("F32", "I64 or I32"),
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
        ("has no embeddings and no head",),
        ("--shared-tensors", "include"),
    ),
    Case(
        "include in the early dialect",
        lambda _: None,
        (("dialect", "token_embd.weight"), ("dialect", "output.weight")),
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
