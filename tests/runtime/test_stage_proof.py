"""A DeepSeek-V4 checkpoint, which holds target and draft, as the reference of a validation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from dspark_convert.errors import InputError, UsageError
from dspark_convert.runtime.proof import Proof, why_not_compared
from tests.runtime.stage_pairs import StagePair, make_stage_pair

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def pair(tmp_path: Path) -> StagePair:
    return make_stage_pair(tmp_path)


def statuses(pair: StagePair, draft: Path | None = None) -> list[tuple[str, str]]:
    checks = Proof(draft or pair.draft, pair.target, pair.directory, None).judge_files()
    return [(check.name, check.status) for check in checks]


def test_files_are_compared(pair: StagePair) -> None:
    assert why_not_compared(pair.directory) == ""
    assert statuses(pair) == [("metadata", "pass"), ("values", "pass")]
    assert Proof(pair.draft, pair.target, pair.directory, None).layers_to_record() == [2, 3, 4]


def test_one_wrong_key_and_one_wrong_tensor(pair: StagePair) -> None:
    wrong = pair.written("key", lambda want: want.kv.update({"dflash.expert_used_count": ("UINT32", 2)}))
    assert statuses(pair, wrong) == [("metadata", "fail"), ("values", "pass")]
    wrong = pair.written(
        "tensor",
        lambda want: want.tensors.update({"blk.0.attn_norm.weight": want.tensors["blk.1.attn_norm.weight"]}),
    )
    assert statuses(pair, wrong) == [("metadata", "pass"), ("values", "fail")]


def test_the_draft_s_shards_are_enough(pair: StagePair) -> None:
    for shard in ("model-00001-of-00005.safetensors", "model-00002-of-00005.safetensors"):
        (pair.directory / shard).unlink()
    assert why_not_compared(pair.directory) == ""
    assert statuses(pair) == [("metadata", "pass"), ("values", "pass")]


def test_a_shard_of_the_draft_is_away(pair: StagePair) -> None:
    (pair.directory / "model-00004-of-00005.safetensors").unlink()
    with pytest.raises(InputError):
        Proof(pair.draft, pair.target, pair.directory, None)
    assert why_not_compared(pair.directory)


def test_a_scale_of_another_shape_is_told(pair: StagePair) -> None:
    shard = pair.directory / "model-00003-of-00005.safetensors"
    tensors = load_file(shard)
    name = "mtp.0.attn.wq_a.scale"
    tensors[name] = tensors[name][:1].clone()
    save_file(tensors, shard, {"format": "pt"})
    assert "mtp.0.attn.wq_a.scale" in why_not_compared(pair.directory)
    with pytest.raises(InputError, match=r"mtp\.0\.attn\.wq_a\.scale"):
        Proof(pair.draft, pair.target, pair.directory, None)


def test_there_is_no_pytorch_model_of_the_target(pair: StagePair) -> None:
    with pytest.raises(UsageError, match=r"DeepSeek-V4 target to compare its features with; leave --target-reference"):
        Proof(pair.draft, pair.target, pair.directory, pair.directory)


def test_the_model_alone_is_no_reference(pair: StagePair) -> None:
    index = pair.directory / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"] = {k: v for k, v in document["weight_map"].items() if not k.startswith("mtp.")}
    index.write_text(json.dumps(document))
    with pytest.raises(InputError, match="is a full model"):
        Proof(pair.draft, pair.target, pair.directory, None)
