"""FP8 and FP4 of a DeepSeek-V4 draft over all codes, and which tensors of the target's checkpoint are read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_convert.reference.deepseek4_facts import StageFacts
from dspark_convert.reference.deepseek4_weights import e2m1, e8m0, widen
from dspark_convert.reference.draft import Reference
from dspark_convert.reference.facts import Facts, read_facts
from fixtures.deepseek4 import make_deepseek4
from tests.reference import deepseek4_loops as loops

E8 = torch.float8_e8m0fnu

FEATURES = np.random.default_rng(1).normal(size=(3, 3 * 192))
CHOSEN = [5, 4, 3, 2, 1]


def block(directory: Path, **options: Any) -> np.ndarray[Any, Any]:
    return np.asarray(Reference.load(directory, **options).block(FEATURES, 9, CHOSEN).logits)


def test_all_codes_of_e4m3() -> None:
    codes = torch.arange(256, dtype=torch.uint8).reshape(2, 128)
    scales = torch.tensor([[127, 120]], dtype=torch.uint8).view(torch.float8_e8m0fnu)
    values = widen(codes.view(torch.float8_e4m3fn), scales, 64)
    for i in range(256):
        found, expected = float(values[i // 128, i % 128]), loops.e4m3(i) * (2.0**-7 if i % 128 >= 64 else 1.0)
        assert math.isnan(found) if i % 128 == 127 else found == expected


def test_all_codes_of_e2m1() -> None:
    assert e2m1(torch.arange(16)).tolist() == [loops.four(code) for code in range(16)]


def test_all_codes_of_e8m0() -> None:
    powers = e8m0(torch.arange(256, dtype=torch.uint8))
    assert powers[:255].double().tolist() == [2.0 ** (code - 127) for code in range(255)]
    assert math.isnan(float(powers[255]))


def test_pairs_of_four_bits_start_low_and_share_a_scale_by_32() -> None:
    packed = torch.zeros(1, 32, dtype=torch.int8)
    packed[0, 0], packed[0, 16] = 0x52, 0x07  # 1, 3 and, in the second block, 6, 0
    scales = torch.tensor([[127, 129]], dtype=torch.uint8).view(torch.float8_e8m0fnu)
    values = widen(packed, scales, 128)
    assert values[0, :2].tolist() == [1.0, 3.0] and values[0, 32:34].tolist() == [24.0, 0.0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_deepseek4(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return make_deepseek4(tmp_path / "draft", with_target=False)


def test_facts(whole: Path) -> None:
    stages = StageFacts(160, 2, 80, 16, 8, 8, 3, 1, True, 1.5, 2.5, 4, 20, 1e-6, 128)
    assert read_facts(whole) == Facts(
        block_size=5,
        sample_from_anchor=True,
        taps=(2, 3, 4),
        mask_token_id=507,
        vocab_size=512,
        hidden_size=192,
        intermediate_size=64,
        n_layer=3,
        n_head=8,
        n_head_kv=1,
        head_dim=32,
        attention_bias=False,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        context_length=1024,
        markov_rank=32,
        has_confidence_head=True,
        confidence_with_markov=True,
        num_target_layers=4,
        stages=stages,
    )


def test_the_targets_shards_are_needed_for_its_tables_alone(whole: Path, draft: Path) -> None:
    with pytest.raises(ValueError, match=r"lacks tensor embed_tokens\.weight"):
        Reference.load(draft)
    shard = load_file(whole / "model-00001-of-00005.safetensors")
    head = load_file(whole / "model-00002-of-00005.safetensors")["head.weight"]
    assert np.array_equal(block(draft, embed=shard["embed.weight"], head=head), block(whole))


def test_tensors_are_replaced_by_values(whole: Path) -> None:
    shard = load_file(whole / "model-00004-of-00005.safetensors")
    name = "mtp.1.ffn.experts.3.w2.weight"
    values = widen(shard[name], shard[name.replace("weight", "scale")], 128)
    assert np.array_equal(block(whole, weights={name: values}), block(whole))
    zeros = {f"mtp.1.ffn.experts.{e}.w2.weight": torch.zeros(192, 64) for e in range(8)}
    assert not np.array_equal(block(whole, weights=zeros), block(whole))
    with pytest.raises(ValueError, match=r"is \[192, 64\] in the checkpoint, its replacement \[192, 32\]"):
        block(whole, weights={name: shard[name]})


def test_a_table_in_a_stage_goes_before_the_targets(whole: Path, draft: Path) -> None:
    shard = load_file(whole / "model-00001-of-00005.safetensors")
    head = load_file(whole / "model-00002-of-00005.safetensors")["head.weight"]
    change(draft, 0, lambda t: t.update({"mtp.0.embed.weight": shard["embed.weight"].flip(0)}))
    change(draft, 2, lambda t: t.update({"mtp.2.head.weight": head}))
    assert np.array_equal(block(draft), block(whole, embed=shard["embed.weight"].flip(0)))


def change(directory: Path, stage: int, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Rewrites a stage's shard and the index."""
    file = f"model-{stage + 3:05}-of-00005.safetensors"
    tensors = load_file(directory / file)
    before = set(tensors)
    edit(tensors)
    save_file(tensors, directory / file)
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    index["weight_map"] = {n: f for n, f in index["weight_map"].items() if n not in before - set(tensors)}
    index["weight_map"] |= dict.fromkeys(tensors, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def test_the_bias_for_images_is_ignored(draft: Path) -> None:
    tables = {"embed": torch.ones(512, 192), "head": torch.ones(512, 192)}
    expected = block(draft, **tables)
    change(draft, 1, lambda t: t.update({"mtp.1.ffn.gate.bias_vl": torch.ones(8)}))
    assert np.array_equal(block(draft, **tables), expected)


WRONG: list[tuple[str, int, Callable[[dict[str, torch.Tensor]], object]]] = [
    ("lacks tensor mtp.1.attn.attn_sink", 1, lambda t: t.pop("mtp.1.attn.attn_sink")),
    ("does not know what tensor mtp.1.extra does", 1, lambda t: t.update({"mtp.1.extra": torch.ones(1)})),
    (
        r"wkv.scale has to be float8_e8m0fnu \[1, 2\], found torch.float8_e8m0fnu \[2, 1\]",
        0,
        lambda t: t.update(
            {"mtp.0.attn.wkv.scale": t["mtp.0.attn.wkv.scale"].view(torch.uint8).T.contiguous().view(E8)}
        ),
    ),
    ("wkv.scale has to be .* found nothing", 0, lambda t: t.pop("mtp.0.attn.wkv.scale")),
    ("gate.bias of type torch.int64", 0, lambda t: t.update({"mtp.0.ffn.gate.bias": torch.ones(8).long()})),
    ("dspark_markov_rank is 32, but markov_head.markov_w1.weight has 16 columns", 2, lambda t: t.update(half(t))),
    ("is there twice", 1, lambda t: t.update({"mtp.1.norm.weight": torch.ones(192)})),
    (r"holds the stages \[0, 1, 2, 4\]", 2, lambda t: t.update({"mtp.4.x": torch.ones(1)})),
]


def half(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = "mtp.2.markov_head.markov_w1.weight"
    return {name: tensors[name][:, :16].contiguous()}


@pytest.mark.parametrize(("message", "stage", "edit"), WRONG)
def test_wrong_tensors_are_refused(
    draft: Path, message: str, stage: int, edit: Callable[[dict[str, torch.Tensor]], object]
) -> None:
    change(draft, stage, edit)
    with pytest.raises(ValueError, match=message):
        Reference.load(draft, embed=torch.ones(512, 192), head=torch.ones(512, 192))


def test_a_missing_shard_of_the_draft_is_named(draft: Path) -> None:
    (draft / "model-00004-of-00005.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model-00004-of-00005.safetensors is named in .* and is not there"):
        read_facts(draft)


def test_a_shard_that_lacks_a_tensor_of_the_index_is_named(draft: Path) -> None:
    index = json.loads((draft / "model.safetensors.index.json").read_text())
    index["weight_map"]["mtp.1.attn.wq_a.weight"] = "model-00003-of-00005.safetensors"
    (draft / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"model-00003-of-00005\.safetensors cannot be read"):
        read_facts(draft)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scoring_func": "sigmoid"}, "scoring_func has to be sqrtsoftplus"),
        ({"quantization_config": {"weight_block_size": [128, 64]}}, "weight_block_size has to be two equal sizes"),
        ({"num_key_value_heads": 2}, "num_key_value_heads has to be 1"),
        ({"qk_rope_head_dim": 48}, "do not fit together"),
        ({"dspark_noise_token_id": 512}, "dspark_noise_token_id has to be below"),
        ({"dspark_target_layer_ids": [2, 3, 4]}, "the target has no 5"),
        ({"architectures": ["DeepseekV41ForCausalLM"]}, "not the draft class DeepseekV41ForCausalLM"),
    ],
)
def test_configs_that_it_cannot_compute_are_refused(whole: Path, draft: Path, changes: Any, message: str) -> None:
    config = json.loads((whole / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps(config | changes))
    for file in whole.glob("*.safetensors"):
        if not (draft / file.name).exists():
            (draft / file.name).symlink_to(file)
    with pytest.raises(ValueError, match=message):
        read_facts(draft)
