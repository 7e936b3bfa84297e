"""DeepSeek-V4 drafts, tensor by tensor against the checkpoint: right files, and every kind of wrong one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.reference.deepseek4_weights import read_stage_tensors
from dspark_convert.reference.facts import read_facts
from dspark_convert.runtime.published_stages import required_stage_names, stage_names
from dspark_convert.runtime.rounding import same_fours
from dspark_convert.runtime.values import Values, compare_values
from fixtures.deepseek4_gguf import LAYER_NAMES, mxfp4
from fixtures.deepseek4_packing import pack_fp4
from tests import stage_oracle
from tests.oracle import Expected
from tests.runtime.stage_pairs import StagePair, make_stage_pair

pytestmark = pytest.mark.usefixtures("one_thread")

Change = Callable[[Expected], object]

UP, DOWN = "blk.1.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> StagePair:
    return make_stage_pair(tmp_path_factory.mktemp("stages"))


def compare(pair: StagePair, draft: Path | None = None) -> Values:
    with open_gguf(draft or pair.draft) as ours, open_gguf(pair.target) as theirs:
        return compare_values(ours, theirs, read_stage_tensors(pair.directory), read_facts(pair.directory))


def blocks(name: str, change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> Change:
    """Puts ``change`` of a stack of experts [experts, rows, blocks, 17] in its place."""

    def edit(want: Expected) -> None:
        kind, shape, data = want.tensors[name]
        packed = np.frombuffer(data, np.uint8).reshape(shape[2], shape[1], -1, 17).copy()
        want.tensors[name] = (kind, shape, change(packed).tobytes())

    return edit


def numbers(name: str, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Change:
    """Puts ``change`` of an F32 or Q8_0 tensor [rows, columns] in its place."""

    def edit(want: Expected) -> None:
        kind, shape, data = want.tensors[name]
        number = gguf.GGMLQuantizationType[kind]
        rows = np.frombuffer(data, np.uint8).reshape(*reversed(shape[1:]), -1)
        values = change(np.array(gguf.quants.dequantize(rows, number), np.float32).reshape(shape[::-1]))
        want.tensors[name] = (kind, shape, gguf.quants.quantize(np.ascontiguousarray(values), number).tobytes())

    return edit


def swap(first: str, second: str) -> Change:
    def edit(want: Expected) -> None:
        want.tensors[first], want.tensors[second] = want.tensors[second], want.tensors[first]

    return edit


def swapped_experts(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    packed[[2, 5]] = packed[[5, 2]]
    return packed


def shifted_scales(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    packed[..., 0] = np.roll(packed[..., 0], 1, 0)
    return packed


def swapped_nibbles(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    packed[..., 1:] = packed[..., 1:] >> 4 | packed[..., 1:] << 4
    return packed


def checkpoint_s_order(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The pairs as they stand in the checkpoint."""
    low, high = packed[..., 1:] & 15, packed[..., 1:] >> 4
    codes = np.concatenate((low, high), -1)
    packed[..., 1:] = codes[..., ::2] | codes[..., 1::2] << 4
    return packed


def exchanged_pairs(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The high bits taken for the first number of a pair."""
    low, high = packed[..., 1:] & 15, packed[..., 1:] >> 4
    codes = (
        np.concatenate((low, high), -1).reshape(*packed.shape[:-1], 16, 2)[..., ::-1].reshape(*packed.shape[:-1], 32)
    )
    packed[..., 1:] = codes[..., :16] | codes[..., 16:] << 4
    return packed


def one_code(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    packed[7, 3, 1, 9] ^= 1
    return packed


@pytest.mark.parametrize("outtype", ["auto", "bf16", "f32"])
def test_right_file_of_every_type(pair: StagePair, outtype: str) -> None:
    values = compare(pair, pair.written(f"right-{outtype}", lambda _want: None, outtype))
    assert values.problems == []
    assert len(values.distances) == 81 + 2
    assert values.check().detail.startswith("83 tensors are the checkpoint's")
    moved = {one.name for one in values.distances if one.relative}
    if outtype == "auto":
        assert len(moved) == 25
        assert all(one.relative < 0.01 for one in values.distances)
        assert sorted({len(tensor.shape) for tensor in values.held.values()}) == [2]
        assert len(values.held) == 25
    else:
        assert (moved, values.held, values.rounded) == (set(), {}, False)
    assert GGMLType.MXFP4 in values.multiplied


@pytest.mark.parametrize(
    ("change", "count", "words"),
    [
        (blocks(UP, swapped_experts), 2, f"{UP}, expert 2, is 1.4 of its size away from mtp.1.ffn.experts.2.w3.weight"),
        (blocks(UP, swapped_experts), 2, "(it is mtp.1.ffn.experts.5.w3.weight)"),
        (blocks(DOWN, lambda b: np.roll(b, 1, 0)), 8, "(it is mtp.1.ffn.experts.7.w2.weight)"),
        (swap(UP, "blk.1.ffn_gate_exps.weight"), 16, "(it is mtp.1.ffn.experts.0.w3.weight)"),
        (swap(UP, "blk.2.ffn_up_exps.weight"), 16, "(it is mtp.2.ffn.experts.0.w3.weight)"),
        (blocks(DOWN, shifted_scales), 8, "(its numbers are right, and the scales that they share are not)"),
        (blocks(DOWN, swapped_nibbles), 8, "expert 0, is 1.4 of its size away"),
        (blocks(UP, checkpoint_s_order), 8, "(its bytes are the checkpoint's, in another order than MXFP4 has)"),
        (blocks(UP, exchanged_pairs), 8, "(the two numbers of each byte are exchanged)"),
        (blocks(UP, one_code), 1, "expert 7, is 0.0"),
        (blocks(UP, one_code), 1, "from mtp.1.ffn.experts.7.w3.weight, which MXFP4 holds exactly"),
        (blocks(UP, lambda b: b * 0), 8, "(it is all zeros)"),
        (numbers("blk.0.attn_sinks.weight", lambda a: a * 0), 1, "blk.0.attn_sinks.weight is 1 of its size away"),
        (numbers("blk.1.exp_probs_b.bias", lambda a: a * 0), 1, "away from mtp.1.ffn.gate.bias"),
        (numbers("blk.1.ffn_up_shexp.weight", lambda a: a * 0), 1, "away from mtp.1.ffn.shared_experts.w3.weight"),
        (swap("blk.1.ffn_up_shexp.weight", "blk.1.ffn_gate_shexp.weight"), 2, "(it is mtp.1.ffn.shared_experts.w1.w"),
        (swap("blk.2.hc_attn_fn.weight", "blk.2.hc_ffn_fn.weight"), 2, "(it is mtp.2.hc_ffn_fn)"),
        (swap("blk.2.hc_attn_base.weight", "blk.2.hc_ffn_base.weight"), 2, "(it is mtp.2.hc_ffn_base)"),
        (swap("blk.2.hc_attn_scale.weight", "blk.2.hc_ffn_scale.weight"), 2, "blk.2.hc_attn_scale.weight is 0."),
        (numbers("output_hc_base.weight", lambda a: a[::-1]), 1, "(it is reversed)"),
        (numbers("blk.0.attn_q_b.weight", lambda a: neox(a)), 1, "(its heads are permuted as for NeoX RoPE)"),
        (numbers("blk.0.attn_kv.weight", lambda a: neox(a)), 1, "(its heads are permuted as for NeoX RoPE)"),
        (numbers("fc.weight", lambda a: np.roll(a, 192, 1)), 1, "fc.weight is 1.4 of its size away from main_proj"),
        (numbers("fc.weight", lambda a: np.roll(a, 192, 1)), 1, "(its taps are in the order [2, 0, 1])"),
        (numbers("blk.1.attn_q_a.weight", lambda a: a * tiles(a)), 1, "the scales that they share are not)"),
        (lambda want: want.tensors.pop("blk.2.attn_sinks.weight"), 1, "the file lacks blk.2.attn_sinks.weight"),
        (lambda want: want.tensors.pop("blk.0.exp_probs_b.bias"), 1, "the file lacks blk.0.exp_probs_b.bias"),
        (lambda want: want.tensors.pop("blk.0.ffn_up_shexp.weight"), 1, "the file lacks blk.0.ffn_up_shexp.weight"),
        (lambda want: want.tensors.pop("output_hc_fn.weight"), 1, "the file lacks output_hc_fn.weight"),
        (
            lambda want: want.tensors.pop("conf_proj.weight"),
            1,
            "which the checkpoint has (confidence_head.proj.weight)",
        ),
    ],
)
def test_wrong_tensor_is_named(pair: StagePair, change: Change, count: int, words: str) -> None:
    found = compare(pair, pair.written("wrong", change))
    assert len(found.problems) == count, found.problems
    assert any(words in problem for problem in found.problems), found.problems
    assert found.check().status == "fail"


def neox(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each head of 32 the last 16 are rotated: neighbours are put half of them apart."""
    order = [*range(16), *range(16, 32, 2), *range(17, 32, 2)]
    return rows.reshape(-1, 32, rows.shape[1])[:, order].reshape(rows.shape)


def tiles(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Factors that the scales of FP8 tiles might have been taken for."""
    factors = np.ones_like(matrix)
    factors[:128, 128:] = 4
    factors[128:, :128] = 0.25
    return factors


def test_requantised_experts(pair: StagePair) -> None:
    """Experts in another type are compared with what it can hold, and the file's own are taken."""

    def requantise(want: Expected) -> None:
        _, shape, data = want.tensors[UP]
        rows = np.frombuffer(data, np.uint8).reshape(shape[2], shape[1], -1)
        values = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType.MXFP4)
        packed = gguf.quants.quantize(np.asarray(values, np.float32), gguf.GGMLQuantizationType.Q4_0)
        want.tensors[UP] = ("Q4_0", shape, packed.tobytes())

    values = compare(pair, pair.written("q4", requantise))
    assert values.problems == []
    assert len([name for name in values.held if ".experts." in name]) == 8
    assert 0 < {one.name: one.relative for one in values.distances}[UP] < 0.3


def test_three_dimensions_of_the_grouped_projection(pair: StagePair) -> None:
    def part(want: Expected) -> None:
        kind, shape, data = want.tensors["blk.0.attn_output_a.weight"]
        want.tensors["blk.0.attn_output_a.weight"] = (kind, (shape[0], shape[1] // 2, 2), data)

    assert compare(pair, pair.written("grouped", part)).problems == []


def test_too_few_experts(pair: StagePair) -> None:
    def fewer(want: Expected) -> None:
        kind, shape, data = want.tensors[UP]
        want.tensors[UP] = (kind, (*shape[:2], 7), data[: len(data) // 8 * 7])

    assert compare(pair, pair.written("fewer", fewer)).problems == [
        f"{UP} is [192, 64, 7], but the checkpoint has 8 experts"
    ]


def test_another_target_s_tables(pair: StagePair, tmp_path: Path) -> None:
    other = make_stage_pair(tmp_path, seed=4)
    with open_gguf(pair.draft) as ours, open_gguf(other.target) as theirs:
        values = compare_values(ours, theirs, read_stage_tensors(pair.directory), read_facts(pair.directory))
    assert len(values.problems) == 2
    assert values.problems[0].startswith("the file borrows the target's token_embd.weight, which is 1.4 of its size")


def test_the_target_s_shards_may_be_away(pair: StagePair, tmp_path: Path) -> None:
    alone = make_stage_pair(tmp_path)._replace(target=pair.target)
    for shard in ("model-00001-of-00005.safetensors", "model-00002-of-00005.safetensors"):
        (alone.directory / shard).unlink()
    values = compare(alone)
    assert values.problems == []
    assert values.embed is not None
    assert len(values.distances) == 81


@pytest.mark.parametrize("shape", [(1, 32), (5, 96), (64, 64)])
def test_fours_are_compared_bit_for_bit(shape: tuple[int, int]) -> None:
    pairs, scales = pack_fp4(torch.randn(shape, generator=torch.Generator().manual_seed(1)))
    data = mxfp4(pairs, scales).numpy()
    assert same_fours(data, pairs, scales)
    for row, byte in ((0, 0), (0, 1), (shape[0] - 1, 16), (shape[0] - 1, data.shape[1] - 1)):
        for bit in (1, 16, 128):
            wrong = data.copy()
            wrong[row, byte] ^= bit
            assert not same_fours(wrong, pairs, scales)
    assert not same_fours(data[:, :-17], pairs, scales)


def test_published_names_are_the_fixture_s() -> None:
    """Two tables written apart say the same of every tensor of a stage."""
    for name, gguf_name in LAYER_NAMES.items():
        if "compressor" not in name and "indexer" not in name and "tid2eid" not in name:
            assert stage_names(f"blk.11.{gguf_name}", 3) == [f"mtp.11.{name}"]
    for name, gguf_name in stage_oracle.HEAD_NAMES.items():
        assert stage_names(gguf_name, 3) == [name]
    assert stage_names("blk.0.ffn_down_exps.weight", 2) == [
        "mtp.0.ffn.experts.0.w2.weight",
        "mtp.0.ffn.experts.1.w2.weight",
    ]
    assert len(required_stage_names(3)) == 78
    for name in ("blk.0.attn_q.weight", "blk.x.attn_kv.weight", "d2t", "blk.0.exp_probs_b.weight"):
        assert stage_names(name, 3) is None
