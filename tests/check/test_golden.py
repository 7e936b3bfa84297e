"""Golden plans: what they hold, how a difference is told, and files that are none."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.check.golden import counted, differences, golden_plan, origin, plan_hash, plan_text, read_plan
from dspark_convert.errors import InputError
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.plan import Plan, plan_for_directory
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.target import open_target_directory
from tests.check.places import ROOT, write

PAIR = ROOT / "fixtures" / "pair"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_for_directory(PAIR / "draft", open_target_directory(PAIR / "target"))


@pytest.fixture
def document(plan: Plan) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(plan_text(golden_plan(plan)))
    return made


def told(tmp_path: Path, golden: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return differences(write(tmp_path / "plan.json", plan_text(golden)), found)


def test_it_holds_everything_but_labels(plan: Plan, document: dict[str, Any]) -> None:
    assert [tensor["name"] for tensor in document["tensors"]] == [job.name for job in plan.tensors]
    assert document["tensors"][0] == {
        "name": "fc.weight",
        "type": "BF16",
        "shape": [384, 128],
        "from": "fc.weight BF16 [128, 384]",
    }
    keys = {kv.key for kv in plan.metadata}
    left_out = keys - set(document["metadata"])
    assert "dspark.converter_version" in left_out and "general.name" in left_out
    assert {key.split(".")[0] for key in left_out} == {"general", "dspark", "tokenizer"}
    assert document["metadata"]["dflash.target_layers"] == {"type": "ARRAY", "items": "INT32", "value": [1, 2, 3]}
    tokens = next(kv.value for kv in plan.metadata if kv.key == "tokenizer.ggml.tokens")
    assert document["metadata"]["tokenizer.ggml.tokens"] == {
        "type": "ARRAY",
        "items": "STRING",
        "count": 1024,
        "sha256": hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest(),
    }


def test_its_hash_is_that_of_the_file(tmp_path: Path, plan: Plan) -> None:
    path = write(tmp_path / "plan.json", plan_text(golden_plan(plan)))
    assert plan_hash(golden_plan(plan)) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert read_plan(path) == golden_plan(plan)


def test_the_same_plan_has_no_differences(tmp_path: Path, plan: Plan, document: dict[str, Any]) -> None:
    assert told(tmp_path, document, golden_plan(plan)) == []
    renamed = replace(
        plan, metadata=tuple(replace(kv, value="x") if kv.key == "general.name" else kv for kv in plan.metadata)
    )
    assert told(tmp_path, document, golden_plan(renamed)) == []


def test_each_difference_is_a_line(tmp_path: Path, plan: Plan, document: dict[str, Any]) -> None:
    document["metadata"]["dflash.target_layers"]["value"] = [0, 1, 2]
    document["metadata"]["dflash.block_size"]["type"] = "INT32"
    document["metadata"]["dflash.gone"] = {"type": "BOOL", "value": True}
    del document["metadata"]["dflash.block_count"]
    document["metadata"]["tokenizer.ggml.tokens"]["sha256"] = "0" * 64
    del document["tensors"][0]
    document["tensors"][0]["type"] = "F16"
    document["tensors"][1]["shape"] = [7]
    document["tensors"][2]["from"] = "other.weight BF16 [128]"
    document["tensors"].append({"name": "extra", "type": "F32", "shape": [1], "from": "zeros"})
    lines = told(tmp_path, document, golden_plan(plan))
    assert "dflash.target_layers: [0, 1, 2] ([INT32]) -> [1, 2, 3] ([INT32])" in lines
    assert "dflash.block_size: 7 (INT32) -> 7 (UINT32)" in lines
    assert "- dflash.gone: True (BOOL)" in lines
    assert "+ dflash.block_count: 3 (UINT32)" in lines
    assert any(line.startswith("tokenizer.ggml.tokens: '1024 with SHA-256 00") for line in lines)
    assert "+ fc.weight: BF16 [384, 128]" in lines
    assert "- extra: F32 [1]" in lines
    assert any("is made from: other.weight BF16 [128] ->" in line for line in lines)
    names = [tensor["name"] for tensor in document["tensors"]]
    assert f"{names[0]}: F16 [128] -> F32 [128]" in lines
    assert any(line.startswith(f"{names[1]}: ") and "[7] -> " in line for line in lines)
    assert len(lines) == 10


def test_order_and_many_differences(tmp_path: Path, plan: Plan, document: dict[str, Any]) -> None:
    tensors = document["tensors"]
    document["tensors"] = tensors[1:] + tensors[:1]
    assert told(tmp_path, document, golden_plan(plan)) == ["the tensors stand in another order"]
    document["tensors"] = []
    lines = told(tmp_path, document, golden_plan(plan))
    assert (len(lines), lines[-1]) == (13, "and 28 more differences")


PLAN_OF = '{"schema": "dspark-plan/1", "dialect": "dflash", "metadata": {}, "tensors": [%s]}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"schema": "dspark-plan/2"}',
        '{"schema": "dspark-plan/1", "dialect": "dflash", "metadata": {"a": 1}, "tensors": []}',
        '{"schema": "dspark-plan/1", "dialect": "dflash", "metadata": {"a": {"type": "NO"}}, "tensors": []}',
        '{"schema": "dspark-plan/1", "dialect": "dflash", "metadata": {}, "tensors": [{"name": "a"}]}',
        PLAN_OF % '{"name": "a", "type": "F32", "shape": [1]}',
        PLAN_OF % '{"name": "a", "type": "F32", "shape": [Infinity], "from": "a"}',
        "[" * 100_000,
    ],
)
def test_files_that_are_no_plan(tmp_path: Path, plan: Plan, text: str) -> None:
    with pytest.raises(InputError, match=r"plan.json .* write it anew\."):
        differences(write(tmp_path / "plan.json", text), golden_plan(plan))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a.0.b"], "a.0.b"),
        (["a.0.b", "a.1.b", "a.2.b"], "a.{0-2}.b"),
        (["e3", "e4"], "e{3-4}"),
        (["a.0.b", "a.2.b"], "a.0.b, a.2.b"),
        (["a.1.b", "a.0.b"], "a.1.b, a.0.b"),
        (["a.0.b.0", "a.1.b.1"], "a.0.b.0, a.1.b.1"),
        (["q", "k"], "q, k"),
    ],
)
def test_names_that_count_up(names: list[str], text: str) -> None:
    assert counted(names) == text


def ref(name: str, dtype: str = "BF16", *shape: int) -> TensorRef:
    return TensorRef(name, Path("s"), dtype, shape, 0, 0)


def test_what_a_tensor_is_made_from() -> None:
    q, table = Source(ref("q", "BF16", 64, 32)), Source(ref("embed", "BF16", 9, 32))
    codes = Source(
        ref("x", "U8", 4, 32), "nvfp4", ref("x_scale", "F8_E4M3", 4, 4), tensor_scale=ref("x_scale_2", "F32")
    )
    made = {
        "q BF16 [64, 32], unpair heads of 16": TensorJob("t", GGMLType.F16, (32, 64), (q,), "unpair", head_dim=16),
        "embed BF16 [9, 32], row 7 from mask.pt F32 [32]": TensorJob(
            "t", GGMLType.F16, (32, 9), (table,), "patch_row", row=7, patch=ref("mask.pt", "F32", 32)
        ),
        "x U8 [4, 32], nvfp4 with x_scale and x_scale_2": TensorJob("t", GGMLType.NVFP4, (64, 4), (codes,)),
        "x_scale_2 F32 []": TensorJob("t.scale", GGMLType.F32, (1,), (Source(ref("x_scale_2", "F32")),)),
        "d2t I64 [9], absolute_ids": TensorJob(
            "d2t", GGMLType.I64, (9,), (Source(ref("d2t", "I64", 9)),), "absolute_ids"
        ),
        "zeros": TensorJob("t", GGMLType.F32, (1,), (), "zeros"),
        f"literal, {hashlib.sha256(b'1234').hexdigest()}": TensorJob(
            "t", GGMLType.F32, (1,), (), "literal", literal=b"1234"
        ),
    }
    assert {text: origin(job) for text, job in made.items()} == {text: text for text in made}
