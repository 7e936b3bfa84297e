"""What the outtypes mean for each role, and where rows are too short for a type."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from dspark_convert.ggufio.types import BLOCKS, FILE_TYPES, GGMLType
from dspark_convert.jobs import Encoding, Source, TensorJob
from dspark_convert.options import Experts, Options, Outtype
from dspark_convert.plan import plan_for_directory
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.specs.load import Role
from dspark_convert.specs.policy import Types, fitting, judge_types, label, main_type, plain_type
from tests.test_published import lay_out, planned_tensors, tensors

SMALL = ("mxfp4", "q4_0", "q5_0", "q4_k", "q5_k", "q6_k")
QWEN = "dspark_qwen3_4b_block7"
HEADS = ("token_embd.weight", "output.weight", "markov_w1.weight", "markov_w2.weight", "conf_proj.weight")


def source(encoding: Encoding = "plain", dtype: str = "BF16", rows: int = 256) -> Source:
    return Source(TensorRef("x", Path("x"), dtype, (rows, 256), 0, rows * 512), encoding)


def made(kind: GGMLType, *shape: int) -> TensorJob:
    return TensorJob(f"{kind.name}.weight", kind, shape, (source(),))


def test_every_choice_is_a_type_with_a_file_type() -> None:
    kinds = {GGMLType[name.upper()] for name in get_args(Outtype) if name != "auto"}
    assert kinds == {GGMLType[name.upper()] for name in get_args(Experts) if name != "keep"}
    # What main_type can come to: a choice, or what a choice falls back to.
    assert kinds | {fitting(kind, 32) for kind in kinds} | {fitting(kind, 1) for kind in kinds} <= set(FILE_TYPES)


@pytest.mark.parametrize("outtype", get_args(Outtype))
@pytest.mark.parametrize("role", sorted({*get_args(Role)} - {"ids"}))
def test_vectors_are_f32(outtype: Any, role: Any) -> None:
    assert Types(outtype, "q4_k", GGMLType.BF16).of(role, source(), (256,)) is GGMLType.F32


@pytest.mark.parametrize("outtype", get_args(Outtype))
def test_ids_are_integers_always(outtype: Any) -> None:
    assert Types(outtype, "keep", GGMLType.BF16).of("ids", source(), (256,)) is GGMLType.I64


@pytest.mark.parametrize("outtype", get_args(Outtype))
def test_a_fixed_matrix_is_f32(outtype: Any) -> None:
    assert Types(outtype, "keep", GGMLType.BF16).of("fixed", source(), (256, 4)) is GGMLType.F32


@pytest.mark.parametrize("plain", [GGMLType.BF16, GGMLType.F16])
@pytest.mark.parametrize("outtype", (*SMALL, "q8_0"))
def test_router_and_heads_do_not_go_all_the_way(outtype: Any, plain: GGMLType) -> None:
    types = Types(outtype, "keep", plain)
    assert types.of("router", source(), (256, 8)) is plain
    assert types.of("head", source(), (256, 8)) is GGMLType.Q8_0
    assert types.of("head", None, (256, 8)) is GGMLType.Q8_0
    assert types.of("matrix", source("fp8"), (256, 8)) is GGMLType[outtype.upper()]


@pytest.mark.parametrize("outtype", get_args(Outtype))
def test_fp4_experts_are_kept_and_others_follow(outtype: Any) -> None:
    types = Types(outtype, "keep", GGMLType.BF16)
    assert types.of("expert", source("fp4"), (256, 8, 4)) is GGMLType.MXFP4
    assert types.of("expert", source(), (256, 8, 4)) is types.of("matrix", source(), (256, 8))
    assert Types(outtype, "q6_k", GGMLType.BF16).of("expert", source("fp4"), (256, 8, 4)) is GGMLType.Q6_K


@pytest.mark.parametrize("outtype", get_args(Outtype))
@pytest.mark.parametrize("role", ["matrix", "expert", "head"])
def test_nvfp4_is_kept_unless_dequantized(outtype: Any, role: Any) -> None:
    packed, shape = source("nvfp4", "U8"), (256, 8)
    kept, free = (Types(outtype, "keep", GGMLType.BF16, dequantize) for dequantize in (False, True))
    assert kept.of(role, packed, shape) is GGMLType.NVFP4
    assert free.of(role, packed, shape) is free.of(role, source(), shape)
    # where llama.cpp has no place for the number that multiplies all, and where blocks of 64 do not fit
    assert kept.of(role, packed, shape, scaled=False) is kept.of(role, source(), shape)
    assert kept.of(role, packed, (96, 8)) is kept.of(role, source(), (96, 8))
    assert kept.of(role, packed, (256,)) is GGMLType.F32


@pytest.mark.parametrize(
    ("wanted", "columns", "kind"),
    [
        # as tensor_type_fallback of llama.cpp's llama-quant.cpp
        ("Q4_K", 256, "Q4_K"),
        ("Q4_K", 288, "Q5_0"),
        ("Q5_K", 288, "Q5_1"),
        ("Q6_K", 288, "Q8_0"),
        ("Q4_K", 272, "F16"),
        ("Q5_K", 272, "F16"),
        ("Q6_K", 272, "F16"),
        ("Q8_0", 272, "F16"),
        ("Q4_0", 272, "F16"),
        ("Q5_0", 16, "F16"),
        ("MXFP4", 16, "F16"),
        ("MXFP4", 96, "MXFP4"),
        ("BF16", 1, "BF16"),
        ("F32", 7, "F32"),
    ],
)
def test_rows_that_do_not_fit(wanted: str, columns: int, kind: str) -> None:
    assert fitting(GGMLType[wanted], columns) is GGMLType[kind]
    assert columns % BLOCKS[GGMLType[kind]][0] == 0


def test_auto_goes_by_most_bytes() -> None:
    big, small = source(rows=512), source(dtype="F32", rows=16)
    assert plain_type([big, small]) is GGMLType.BF16
    assert plain_type([source(rows=16), source(dtype="F32", rows=512)]) is GGMLType.F16
    assert plain_type([source(dtype="F16")]) is GGMLType.F16
    assert plain_type([source("fp8", "F8_E4M3")]) is GGMLType.BF16  # codes have no say
    assert plain_type([]) is GGMLType.BF16


def test_file_and_label_are_called_after_most_weights() -> None:
    parts: list[tuple[Role, TensorJob]] = [
        ("matrix", made(GGMLType.Q8_0, 256, 256)),
        ("expert", made(GGMLType.MXFP4, 256, 256, 4)),
        ("head", made(GGMLType.BF16, 256, 100000)),
        ("matrix", made(GGMLType.F32, 100000)),
    ]
    assert main_type(parts) is GGMLType.MXFP4
    assert label(Types("auto", "keep", GGMLType.BF16), parts) == "MXFP4_MOE"
    assert label(Types("mxfp4", "keep", GGMLType.BF16), parts) == "MXFP4"
    assert label(Types("auto", "q4_k", GGMLType.BF16), parts) == "experts-Q4_K"
    assert label(Types("f32", "keep", GGMLType.BF16), parts) == "F32"
    assert label(Types("f32", "q4_k", GGMLType.BF16), parts) == "F32-experts-Q4_K"
    assert label(Types("f32", "q4_k", GGMLType.BF16), parts[:1]) == "F32"


def test_what_is_not_as_asked_is_told() -> None:
    types = Types("q4_k", "q8_0", GGMLType.BF16)
    parts: list[tuple[Role, TensorJob]] = [
        ("matrix", made(GGMLType.Q5_0, 288, 256)),
        ("matrix", made(GGMLType.Q4_K, 256, 256)),
        ("head", made(GGMLType.Q8_0, 256, 256)),
    ]
    found = judge_types(types, parts)
    assert [(f.severity, f.rule) for f in found] == [("warning", "no-experts"), ("info", "type-fallback")]
    assert "Q5_0.weight has rows that blocks of 256 (Q4_K) do not divide: Q5_0 instead." in found[1].message
    assert judge_types(Types("q4_k", "keep", GGMLType.BF16), parts[1:]) == []


def test_nothing_to_dequantize_is_told() -> None:
    plain: list[tuple[Role, TensorJob]] = [("matrix", made(GGMLType.BF16, 256, 256))]
    packed: list[tuple[Role, TensorJob]] = [("matrix", TensorJob("x", GGMLType.BF16, (256, 256), (source("nvfp4"),)))]
    types = Types("auto", "keep", GGMLType.BF16, dequantize=True)
    assert [(f.severity, f.rule) for f in judge_types(types, plain)] == [("warning", "no-nvfp4")]
    assert judge_types(types, packed) == []
    assert judge_types(Types("auto", "keep", GGMLType.BF16), plain) == []


@pytest.mark.parametrize("outtype", SMALL)
def test_of_a_published_draft_the_layers_are_small_and_the_heads_are_not(outtype: Any, tmp_path: Path) -> None:
    root = lay_out(tmp_path / QWEN, QWEN)
    plan = plan_for_directory(root, None, Options(outtype=outtype, shared_tensors="include"))
    wanted = {
        name: (outtype.upper() if kind == "Q8_0" and name not in HEADS else kind, shape)
        for name, (kind, shape) in tensors(QWEN, "q8_0", include=True).items()
    }
    assert planned_tensors(plan) == wanted
    assert {kv.key: kv.value for kv in plan.metadata}["general.file_type"] == FILE_TYPES[GGMLType[outtype.upper()]]
    assert plan.label == outtype.upper()
    assert plan.findings == ()
