"""A DeepSeek-V4 pair is let through, and what kills llama.cpp of it is refused before it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.runtime.precheck import precheck
from dspark_convert.runtime.shape import DraftShape
from tests.oracle import Expected
from tests.runtime.stage_pairs import StagePair, make_stage_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> StagePair:
    return make_stage_pair(tmp_path_factory.mktemp("stages"))


@pytest.mark.parametrize("outtype", ["auto", "bf16", "f32"])
def test_a_good_pair_passes(pair: StagePair, outtype: str) -> None:
    checks, shape = precheck(pair.written("good", lambda _want: None, outtype), pair.target)
    assert [(check.name, check.status) for check in checks] == [("draft", "pass"), ("pair", "pass")], checks
    assert checks[0].detail.endswith("RoPE of neighbouring pairs")
    assert shape == DraftShape(
        block_size=5,
        reads_anchor=True,
        mask_token_id=507,
        causal=False,
        has_confidence_head=True,
        kind="dspark",
        stages=True,
    )


def kv(**values: Any) -> Callable[[Expected], None]:
    def change(want: Expected) -> None:
        for name, value in values.items():
            want.kv[f"dflash.{name.replace('__', '.')}"] = value

    return change


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        (kv(attention__value_length=("UINT32", 16)), "draft", "values are 16 wide and keys 32"),
        (kv(attention__head_count_kv=("UINT32", 8)), "draft", "8 key/value heads are stated"),
        (kv(attention__sliding_window=("UINT32", 0)), "draft", "no sliding window"),
        (kv(hyper_connection__sinkhorn_iterations=("UINT32", 0)), "draft", "0 rounds of Sinkhorn"),
        (kv(attention__output_group_count=("UINT32", 0)), "draft", "0 groups"),
        (kv(expert_used_count=("UINT32", 9)), "draft", "9 of 8 experts"),
        (kv(rope__dimension_sections=("ARRAY[INT32]", [8, 0, 0, 0])), "draft", "turns NeoX pairs"),
        (kv(target_layers=("ARRAY[INT32]", [2, 3, 5])), "pair", "a 4-layer target offers 0 to 4"),
        (kv(target_layers=("ARRAY[INT32]", [-1, 3, 4])), "draft", "a negative layer"),
        (lambda want: want.tensors.pop("blk.1.attn_sinks.weight"), "draft", "blk.1.attn_sinks.weight"),
        (lambda want: want.tensors.pop("blk.0.exp_probs_b.bias"), "draft", "blk.0.exp_probs_b.bias"),
        (lambda want: want.tensors.pop("blk.2.ffn_up_shexp.weight"), "draft", "blk.2.ffn_up_shexp.weight"),
    ],
)
def test_broken_draft_is_refused(pair: StagePair, change: Callable[[Expected], Any], check: str, words: str) -> None:
    checks, shape = precheck(pair.written("broken", change), pair.target)
    assert shape is None
    (failed,) = (one for one in checks if one.status == "fail")
    assert failed.name == check
    assert words in failed.detail


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"index_head_dim": 32}, "keys of 32 like its heads, with which llama.cpp divides by zero"),
        ({"index_head_dim": 96}, "keys of 96; llama.cpp aborts on what is no multiple of 64"),
        ({"compress_ratios": [0, 0, 128, 0, 0, 0, 0]}, "no layer of the target is compressed 4:1"),
        ({"hidden_size": 256}, "hidden states of 192"),
    ],
)
def test_a_target_that_kills_is_refused(pair: StagePair, tmp_path: Path, sizes: dict[str, Any], words: str) -> None:
    other = make_stage_pair(tmp_path, **sizes)
    checks, shape = precheck(pair.draft, other.target)
    assert shape is None
    assert (checks[1].name, checks[1].status) == ("pair", "fail")
    assert words in checks[1].detail
