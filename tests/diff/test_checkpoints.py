"""A file beside the checkpoint that it was made from, or was not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dspark_convert.diff.compare import compare
from dspark_convert.diff.sides import open_sides
from dspark_convert.diff.verdict import verdict
from dspark_convert.errors import InputError
from fixtures.deepseek4 import make_deepseek4
from fixtures.tiny import make_tiny_pair
from tests.checkpoints import Pair, Tensor, Tensors
from tests.conftest import Convert
from tests.diff.pairs import deep, value

UP = "model.layers.1.mlp.up_proj.weight"


def made(pair: Pair, convert: Convert, *args: str) -> Path:
    ended = convert(pair.draft, "--target-gguf", pair.gguf, "-o", "out.gguf", "--force", *args)
    assert ended.code == 0, ended.err
    return Path("out.gguf").resolve()


@pytest.mark.parametrize("outtype", ["f32", "bf16", "f16", "q8_0", "q4_0", "q5_0", "q4_k"])
def test_our_own_conversion_is_the_checkpoint(pair: Pair, convert: Convert, outtype: str) -> None:
    file = made(pair, convert, "--outtype", outtype)
    for sides in ((pair.draft, file), (file, pair.draft)):
        diff = deep(*sides)
        assert diff.is_same
        assert diff.meaning == ()
        assert {key.key for key in diff.metadata} <= {"general.file_type"}
        judged = {each.judgement for each in diff.values or ()}
        assert judged == ({"equal"} if outtype in ("f32", "bf16") else {"equal", "rounding"})
        assert len(diff.values or ()) == len(diff.a.tensors) == len(diff.b.tensors)


@pytest.mark.parametrize("args", [("--shared-tensors", "include"), ("--dialect", "dspark")])
def test_the_checkpoint_is_planned_as_the_file_is(pair: Pair, convert: Convert, args: tuple[str, str]) -> None:
    diff = deep(made(pair, convert, *args), pair.draft)
    assert diff.is_same
    assert diff.tensors == ()
    assert diff.metadata == ()


def test_tables_that_the_checkpoint_does_not_have(pair: Pair, convert: Convert) -> None:
    file = made(pair, convert, "--shared-tensors", "include")

    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.endswith(("embed_tokens.weight", "lm_head.weight"))]:
            del tensors[name]

    pair.tensors(change)
    diff = compare(file, pair.draft)
    changes = {tensor.name: tensor.change for tensor in diff.tensors}
    assert changes == {"token_embd.weight": "only-a", "output.weight": "only-a"}
    assert {each.field for each in diff.meaning or ()} == {"has_token_embd", "has_output"}


def test_one_weight_of_the_checkpoint(pair: Pair, convert: Convert) -> None:
    file = made(pair, convert, "--outtype", "bf16")
    was: list[np.ndarray] = []

    def change(tensors: Tensors) -> None:
        name = next(name for name in tensors if name.endswith(UP.removeprefix("model.")))
        dtype, shape, data = tensors[name]
        bits = np.frombuffer(data, "<u2").copy()
        was.append(bits.copy())
        bits[5 * shape[1] + 9] ^= 0x0040  # the upper bit of the mantissa
        tensors[name] = Tensor(dtype, shape, bits.tobytes())

    pair.tensors(change)
    diff = deep(file, pair.draft)
    assert [each.name for each in diff.values or () if each.judgement != "equal"] == ["blk.1.ffn_up.weight"]
    found = value(diff, "blk.1.ffn_up.weight")
    before = (was[0].astype(np.uint32) << 16).view(np.float32)
    after = before.copy()
    index = 5 * 128 + 9
    after[index] = (np.array([was[0][index] ^ 0x0040], np.uint32) << 16).view(np.float32)[0]
    assert found.max_abs == abs(float(after[index]) - float(before[index]))
    assert found.note.endswith("the largest difference at row 5, column 9")
    assert not diff.is_same


def test_another_config(pair: Pair, convert: Convert) -> None:
    file = made(pair, convert)
    pair.config({"rope_theta": 1e6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})
    diff = compare(file, pair.draft)
    assert {each.field: (each.a, each.b) for each in diff.meaning or ()} == {"rope.freq_base": (1e4, 1e6)}
    assert verdict(diff).startswith("Another draft: RoPE base differs")


def test_another_training_is_seen_in_every_matrix(pair: Pair, convert: Convert, tmp_path: Path) -> None:
    file = made(pair, convert, "--outtype", "q4_0")
    other = make_tiny_pair(tmp_path / "other", seed=1)
    diff = deep(file, other.draft_dir)
    assert diff.meaning == ()
    wrong = {each.name for each in diff.wrong_values}
    assert wrong == {tensor.name for tensor in diff.a.tensors}
    assert all(each.relative is None or each.relative > 0.1 for each in diff.wrong_values)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_deepseek4(tmp_path_factory.mktemp("stages") / "v4")


@pytest.mark.parametrize("types", [("auto", "keep"), ("f32", "f32"), ("bf16", "bf16"), ("f16", "q8_0")])
def test_fp8_and_stacked_fp4_experts(stages: Path, convert: Convert, types: tuple[str, str]) -> None:
    """As a conversion to F32 has them: FP8 in tiles, FP4 with its scales, a layer's experts in one tensor."""
    ended = convert(stages, "-o", "out.gguf", "--outtype", types[0], "--experts", types[1])
    assert ended.code == 0, ended.err
    diff = deep(stages, Path("out.gguf"))
    assert diff.is_same
    judged = {each.name: each.judgement for each in diff.values or ()}
    assert len(judged) == 81
    exact = {name for name, judgement in judged.items() if judgement == "equal"}
    if types[0] in ("f32", "bf16"):
        assert exact == set(judged)
    assert ("blk.0.ffn_up_exps.weight" in exact) == (types[1] != "q8_0")


def test_swapped_experts_of_a_checkpoint(stages: Path, convert: Convert, tmp_path: Path) -> None:
    import json
    import shutil

    from tests.checkpoints import read_tensors, write_tensors

    ended = convert(stages, "-o", "out.gguf")
    assert ended.code == 0, ended.err
    other = tmp_path / "swapped"
    shutil.copytree(stages, other)
    index = json.loads((other / "model.safetensors.index.json").read_text())["weight_map"]
    first = next(name for name in index if ".experts.0.w1.weight" in name and name.startswith("mtp.0."))
    shard = other / index[first]
    tensors = read_tensors(shard)
    for end in ("weight", "scale"):
        names = [first.replace(".experts.0.w1.weight", f".experts.{i}.w1.{end}") for i in (0, 2)]
        tensors[names[0]], tensors[names[1]] = tensors[names[1]], tensors[names[0]]
    write_tensors(shard, tensors)
    diff = deep(Path("out.gguf"), other)
    (wrong,) = diff.wrong_values
    assert wrong.name == "blk.0.ffn_gate_exps.weight"
    assert ", in 2 of its " in wrong.note and wrong.note.endswith(" matrices: 0, 2")


def test_what_comes_from_the_target_is_left_out(pair: Pair, convert: Convert) -> None:
    diff = compare(made(pair, convert), pair.draft)
    assert diff.to_json()["target_keys_left_out"] is True
    assert not diff.metadata


def test_two_checkpoints(pair: Pair, tmp_path: Path) -> None:
    other = make_tiny_pair(tmp_path / "other", block_size=5)
    diff = deep(pair.draft, other.draft_dir)
    assert {each.field for each in diff.meaning or ()} == {"block_size"}
    assert not diff.wrong_values


def test_a_checkpoint_that_cannot_be_converted(pair: Pair, convert: Convert) -> None:
    file = made(pair, convert)

    def change(tensors: Tensors) -> None:
        del tensors[next(name for name in tensors if name.endswith("mlp.up_proj.weight"))]

    pair.tensors(change)
    with pytest.raises(InputError, match="cannot be compared, for it cannot be converted: 1 problem found"):
        open_sides(file, pair.draft)
