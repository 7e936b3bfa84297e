"""Tensor by tensor against the checkpoint: right files of every type, and every kind of wrong tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.reference.facts import read_facts
from dspark_convert.reference.weights import read_tensors
from dspark_convert.runtime.distance import distance
from dspark_convert.runtime.published import checkpoint_name, required_names
from dspark_convert.runtime.rounding import dequantise, hold
from dspark_convert.runtime.values import Values, compare_values
from fixtures.target_gguf import write_target_gguf
from tests import oracle
from tests.mutations.copies import read
from tests.oracle import Expected
from tests.runtime.pairs import PairFiles, make_random_pair, write_gguf


def compare(pair: PairFiles, draft: Path | None = None, target: Path | None = None) -> Values:
    with open_gguf(draft or pair.draft) as ours, open_gguf(target or pair.target) as theirs:
        return compare_values(ours, theirs, read_tensors(pair.draft_dir), read_facts(pair.draft_dir))


def problems(pair: PairFiles, change: Callable[[Expected], object]) -> list[str]:
    values = compare(pair, pair.broken("values", change))
    assert (values.check().status == "fail") == bool(values.problems)
    return values.problems


def tensor(name: str, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Callable[[Expected], None]:
    """Puts ``change`` of the tensor [rows, columns] in its place."""

    def edit(want: Expected) -> None:
        kind, shape, data = want.tensors[name]
        values = change(np.frombuffer(data, np.float32).reshape(shape[::-1]).copy())
        want.tensors[name] = (kind, values.shape[::-1], np.ascontiguousarray(values, np.float32).tobytes())

    return edit


def swap(first: str, second: str) -> Callable[[Expected], None]:
    def edit(want: Expected) -> None:
        want.tensors[first], want.tensors[second] = want.tensors[second], want.tensors[first]

    return edit


@pytest.mark.parametrize("outtype", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("shared", ["omit", "include"])
def test_right_file_of_every_type(random_pair: PairFiles, outtype: str, shared: str) -> None:
    path = random_pair.root / f"right-{outtype}-{shared}.gguf"
    oracle.write(
        oracle.expected(random_pair.draft_dir, random_pair.target_dir, outtype, shared=shared), path, random_pair.target
    )
    values = compare(random_pair, path)
    assert values.problems == []
    # 40 of the draft's own, and the two tables
    assert len(values.distances) == 42
    assert values.rounded == (outtype != "f32")
    own = GGMLType[outtype.upper()]
    # rows of 16 and 144 do not fill blocks of 32
    types = {own, GGMLType.F16} if outtype == "q8_0" else {own}
    assert values.multiplied == (types if shared == "include" else {*types, GGMLType.F32})
    size = {"F32": 0.0, "F16": 2.0**-11, "BF16": 2.0**-8, "Q8_0": 0.01}
    assert all(d.relative <= size[d.type_name] for d in values.distances)
    assert values.check().detail.startswith("42 tensors are the checkpoint's")
    tables = read_tensors(random_pair.draft_dir)
    assert values.embed is not None
    assert values.head is not None
    exact = torch.equal(values.head, tables["lm_head.weight"])
    assert exact == (outtype == "f32" or shared == "omit")
    held = values.held.get("fc.weight", tables["fc.weight"])
    assert torch.equal(held, tables["fc.weight"]) == (outtype == "f32")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (swap("blk.0.attn_q.weight", "blk.2.attn_q.weight"), "blk.0.attn_q.weight is 1.4 of its size away"),
        (swap("blk.0.attn_q.weight", "blk.2.attn_q.weight"), "(it is layers.2.self_attn.q_proj.weight)"),
        (swap("blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"), "(it is layers.1.mlp.up_proj.weight)"),
        (swap("blk.1.attn_norm.weight", "blk.1.ffn_norm.weight"), "(it is layers.1.post_attention_layernorm.weight)"),
        (swap("markov_w1.weight", "markov_w2.weight"), "(it is markov_head.markov_w2.weight)"),
        (tensor("blk.0.attn_q.weight", lambda a: a.T.copy()), "(it is transposed)"),
        (tensor("blk.0.attn_q.weight", lambda a: a[::-1]), "blk.0.attn_q.weight"),
        (tensor("fc.weight", lambda a: a * np.float32(1.001)), "fc.weight is 0.001 of its size away"),
        (tensor("blk.1.attn_output.weight", lambda a: a * 0), "is 1 of its size away"),
        (tensor("output_norm.weight", lambda a: a * np.nan), "output_norm.weight is inf of its size away"),
        (tensor("conf_proj.bias", lambda a: a + 0.1), "conf_proj.bias"),
        (tensor("conf_proj.weight", lambda a: np.roll(a, 16, 1)), "conf_proj.weight"),
        (tensor("markov_w1.weight", lambda a: np.roll(a, 1, 0)), "markov_w1.weight"),
        (lambda want: want.tensors.pop("conf_proj.bias"), "the file lacks conf_proj.bias, which the checkpoint has"),
        (lambda want: want.tensors.pop("blk.2.ffn_up.weight"), "the file lacks blk.2.ffn_up.weight"),
        (
            lambda want: want.tensors.update({"blk.0.attn_qkv.weight": want.tensors["blk.0.attn_q.weight"]}),
            "blk.0.attn_qkv.weight is no tensor of a published draft",
        ),
        (
            lambda want: want.tensors.update({"blk.0.attn_sinks.weight": want.tensors["conf_proj.bias"]}),
            "blk.0.attn_sinks.weight is in the file, but the checkpoint has no layers.0.self_attn.attention_sink_bias",
        ),
        (tensor("markov_w2.weight", lambda a: a[:511]), "markov_w2.weight is [511, 16], but the checkpoint's"),
    ],
)
def test_wrong_tensor_is_named(random_pair: PairFiles, change: Callable[[Expected], object], words: str) -> None:
    found = problems(random_pair, change)
    assert any(words in problem for problem in found), found
    assert len(found) <= 2


def test_scale_that_a_type_s_rounding_would_hide(random_pair: PairFiles) -> None:
    """Against an independent rounding to the type 1 % shows, although Q8_0 itself may explain 2 %."""
    want = oracle.expected(random_pair.draft_dir, random_pair.target_dir, "q8_0")
    kind, shape, data = want.tensors["fc.weight"]
    values = gguf.quants.dequantize(np.frombuffer(data, np.uint8).reshape(shape[1], -1), gguf.GGMLQuantizationType.Q8_0)
    packed = gguf.quants.quantize(values * 1.01, gguf.GGMLQuantizationType.Q8_0)
    want.tensors["fc.weight"] = (kind, shape, packed.tobytes())
    oracle.write(want, path := random_pair.root / "scaled.gguf", random_pair.target)
    (problem,) = compare(random_pair, path).problems
    assert problem == "fc.weight is 0.01 of its size away from fc.weight rounded to Q8_0"


def test_one_row_of_a_coarse_type(random_pair: PairFiles) -> None:
    """Q4_0's noise on the whole hides it."""
    want = oracle.expected(random_pair.draft_dir, random_pair.target_dir, "f32", shared="include")
    _, shape, data = want.tensors["token_embd.weight"]
    rows = np.frombuffer(data, np.float32).reshape(shape[::-1]).copy()
    rows[100] *= -1
    packed = gguf.quants.quantize(rows, gguf.GGMLQuantizationType.Q4_0)
    want.tensors["token_embd.weight"] = ("Q4_0", shape, packed.tobytes())
    oracle.write(want, path := random_pair.root / "row.gguf", random_pair.target)
    (problem,) = compare(random_pair, path).problems
    assert problem.startswith("row 100 of token_embd.weight is 2")
    assert problem.endswith("of its size away from that of embed_tokens.weight")


def test_one_row_of_a_borrowed_table(random_pair: PairFiles, tmp_path: Path) -> None:
    """A token that the target learnt behind the draft."""
    target = read(random_pair.target)
    rows = target.tensors["output.weight"].copy()
    rows[9] = rows[10]
    target.tensors["output.weight"] = rows
    (problem,) = compare(random_pair, target=target.write(tmp_path / "target.gguf", "Q4_0")).problems
    assert problem.startswith("row 9 of the target's output.weight, which the file borrows, is 1.")


def test_tables_of_another_target(random_pair: PairFiles, tmp_path: Path) -> None:
    other = make_random_pair(tmp_path, seed=5)
    found = compare(random_pair, target=other.target).problems
    assert len(found) == 2
    assert found[0].startswith("the file borrows the target's token_embd.weight, which is 1.4 of its size away")
    assert "output.weight" in found[1]


def test_tied_target(tmp_path: Path) -> None:
    pair = make_random_pair(tmp_path, tie=True)
    values = compare(pair)
    assert values.problems == []
    assert values.head is not None
    assert values.embed is not None
    assert torch.equal(values.head, values.embed)


def test_untied_draft_with_a_tied_target(random_pair: PairFiles, tmp_path: Path) -> None:
    """Here the tied table is the draft's head, and not its embedding, which has to be written."""
    tied = make_random_pair(tmp_path, tie=True)
    (problem,) = compare(random_pair, target=tied.target).problems
    assert "checkpoint's embed_tokens.weight" in problem
    assert "--shared-tensors include" in problem


def test_head_and_embedding_confused(random_pair: PairFiles) -> None:
    want = oracle.expected(random_pair.draft_dir, random_pair.target_dir, "f32", shared="include")
    swap("token_embd.weight", "output.weight")(want)
    oracle.write(want, path := random_pair.root / "confused.gguf", random_pair.target)
    assert any("(it is lm_head.weight)" in problem for problem in compare(random_pair, path).problems)


def test_target_in_bf16_rounds_the_tables(random_pair: PairFiles, tmp_path: Path) -> None:
    write_target_gguf(random_pair.target_dir, path := tmp_path / "bf16.gguf", "bf16")
    values = compare(random_pair, target=path)
    assert values.problems == []
    assert values.rounded
    assert values.multiplied == {GGMLType.F32, GGMLType.BF16}
    table = read_tensors(random_pair.draft_dir)["embed_tokens.weight"]
    assert values.embed is not None
    assert torch.equal(values.embed, table.to(torch.bfloat16).float())


def test_heads_that_a_draft_has_not_are_zeros(tmp_path: Path) -> None:
    pair = make_random_pair(tmp_path, markov_rank=0)
    assert compare(pair).problems == []
    (problem,) = problems(pair, tensor("markov_w2.weight", lambda a: a + 1))
    assert problem == "markov_w2.weight is in the file, but the checkpoint has no markov_head.markov_w2.weight"


def test_confidence_head_without_markov_features(tmp_path: Path) -> None:
    pair = make_random_pair(tmp_path, confidence="hidden_only")
    assert compare(pair).problems == []
    found = problems(pair, tensor("conf_proj.weight", lambda a: a + 1))
    assert found == ["conf_proj.weight is [1, 144], but the checkpoint's confidence_head.proj.weight [1, 128]"]


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q8_0"])
def test_rounded_confidence_head_without_markov_features(tmp_path: Path, kind: str) -> None:
    """Its row is filled up with zeros, and rounded with them."""
    pair = make_random_pair(tmp_path, confidence="hidden_only", markov_rank=32)
    draft = read(pair.draft)
    rounded = draft.write(tmp_path / "rounded.gguf", kind)
    tensors, facts = read_tensors(pair.draft_dir), read_facts(pair.draft_dir)
    with open_gguf(rounded) as ours, open_gguf(pair.target) as theirs:
        found = compare_values(ours, theirs, tensors, facts)
    assert found.problems == []
    head = found.held["confidence_head.proj.weight"]
    assert head.shape == (1, 128)
    want = gguf.quants.quantize(draft.tensors["conf_proj.weight"], gguf.GGMLQuantizationType[kind])
    want = gguf.quants.dequantize(want, gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(head.numpy(), want[:, :128])
    draft.tensors["conf_proj.weight"] = draft.tensors["conf_proj.weight"] * np.float32(1.5)
    with open_gguf(draft.write(tmp_path / "wrong.gguf", kind)) as ours, open_gguf(pair.target) as theirs:
        assert compare_values(ours, theirs, tensors, facts).problems[0].startswith("conf_proj.weight is 0.5")


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q5_0", "Q8_0"])
def test_values_are_read_as_gguf_reads_them(tmp_path: Path, kind: str) -> None:
    number = gguf.GGMLQuantizationType[kind]
    rows = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
    packed = gguf.quants.quantize(rows, number)
    writer = gguf.GGUFWriter(tmp_path / "one.gguf", "dflash")
    writer.add_tensor("fc.weight", packed, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_gguf(tmp_path / "one.gguf") as file:
        stored = file.tensor("fc.weight")
        assert stored is not None
        got = dequantise(file, stored)
    np.testing.assert_array_equal(got.numpy(), gguf.quants.dequantize(packed, number))
    held = hold(torch.from_numpy(rows), GGMLType[kind])
    if kind in ("Q4_0", "Q5_0"):
        assert held is None
    else:
        assert held is not None
        torch.testing.assert_close(held, got, rtol=0, atol=0)


def test_distance() -> None:
    want = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    assert distance(want, want) == 0
    assert distance(torch.tensor([[3.0, 4.5]]), want) == pytest.approx(0.1)
    assert want.tolist() == [[3, 4]]
    many = torch.ones(10_000, 2)
    assert distance(many * 1.5, many) == pytest.approx(0.5)
    assert distance(torch.zeros(2), torch.zeros(2)) == 0
    assert distance(torch.ones(2), torch.zeros(2)) == float("inf")
    assert distance(torch.tensor([float("nan"), 1.0]), torch.ones(2)) == float("inf")


def test_published_names_are_the_oracle_s(random_pair: PairFiles) -> None:
    """Two tables written apart say the same of every tensor of a draft."""
    names = {**oracle.NAMES}
    for part, short in oracle.LAYER_NAMES.items():
        names[f"layers.11.{part}.weight"] = f"blk.11.{short}.weight"
    assert {checkpoint_name(name): name for name in names.values()} == names
    facts = read_facts(random_pair.draft_dir)
    twelve = required_names(replace(facts, n_layer=12))
    assert set(twelve) >= {name for name in names.values() if name.startswith("blk.11.")}
    assert len(required_names(replace(facts, n_layer=2))) == 3 + 2 * 11
    for name in ("blk.0.attn_qkv.weight", "blk.x.attn_q.weight", "d2t", "blk.0.attn_q.bias"):
        assert checkpoint_name(name) is None


def test_trained_pair_file(tmp_path: Path) -> None:
    from fixtures import train_pair

    root = Path(train_pair.__file__).with_name("pair")
    pair = write_gguf(tmp_path, root / "target", root / "draft")
    assert compare(pair).problems == []
    assert compare(pair, target=root / "target.gguf").rounded is False


def flat_head(want: Expected) -> None:
    """As llama.cpp's quantiser writes it: without the trailing dimension of 1."""
    kind, shape, data = want.tensors["conf_proj.weight"]
    assert shape[1:] == (1,)
    want.tensors["conf_proj.weight"] = (kind, shape[:1], data)


@pytest.mark.parametrize("confidence", ["with_markov", "hidden_only"])
def test_head_without_its_trailing_dimension_is_right(tmp_path: Path, confidence: str) -> None:
    pair = make_random_pair(tmp_path, confidence=confidence)
    assert problems(pair, flat_head) == []

    def wrong(want: Expected) -> None:
        tensor("conf_proj.weight", lambda w: -w)(want)
        flat_head(want)

    assert len(problems(pair, wrong)) == 1
