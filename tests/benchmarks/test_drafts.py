"""The synthetic drafts: published layouts, valid values, and files that both converters take for real ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from benchmarks import deepseek4
from benchmarks.deepseek4 import FLASH, SCALED, Sizes
from benchmarks.drafts import Q_FACTS, SMALL, _resized, make_deepseek4, make_qwen3
from benchmarks.shards import POOL_VALUES, Pool, in_shards, nbytes_of
from benchmarks.vocabulary import MAX_TOKEN_LENGTH, write_tokenizer
from dspark_convert.tokenizer.from_directory import from_directory

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 8,
    "vocab_size": 700,
    "mask_token_id": 690,
}


def test_q_has_the_published_sizes() -> None:
    fact = json.loads(Q_FACTS.read_text())
    layout = _resized(fact, fact["config"])
    assert (len(layout), nbytes_of(layout)) == (fact["checkpoint_tensors"], fact["checkpoint_bytes"])
    assert nbytes_of(_resized(fact, fact["config"] | SMALL)) == pytest.approx(0.95e9, rel=0.01)


def test_the_shards_are_of_about_one_size() -> None:
    fact = json.loads(Q_FACTS.read_text())
    layout = _resized(fact, fact["config"])
    shards = in_shards(layout, 3)
    assert [name for shard in shards.values() for name in shard] == list(layout)
    # the embedding and the head are a quarter each
    assert all(nbytes_of(shard) > 0.15 * nbytes_of(layout) for shard in shards.values())


def test_deepseek_v4_flash_has_the_published_counts() -> None:
    stages = deepseek4.stages(FLASH)
    assert (sum(map(len, stages)), sum(map(nbytes_of, stages))) == (4705, 10_862_838_300)
    names = [*deepseek4.target_names(FLASH), *(name for stage in stages for name in stage)]
    assert len(names) == len(set(names)) == 72_317
    assert sum(map(nbytes_of, deepseek4.stages(SCALED))) == pytest.approx(1.39e9, rel=0.01)


def test_values_are_valid() -> None:
    pool = Pool()

    def of(dtype: str, nbytes: int) -> bytes:
        return b"".join(pool.pieces("name", dtype, nbytes))

    whole = np.frombuffer(of("F8_E4M3", POOL_VALUES), np.uint8)
    assert not (whole & 0x7F == 0x7F).any(), "NaN"
    assert len(np.unique(whole)) == 254
    scales = np.frombuffer(of("F8_E8M0", POOL_VALUES), np.uint8)
    assert (scales.min(), scales.max()) == (116, 121)
    bf16 = np.frombuffer(of("BF16", 2 * POOL_VALUES), np.uint16)
    values = (bf16.astype(np.uint32) << 16).view(np.float32)
    assert np.isfinite(values).all()
    assert float(values.std()) == pytest.approx(0.02, rel=0.01)
    assert len(of("F32", 12 * POOL_VALUES)) == 12 * POOL_VALUES, "longer than the pool"
    assert of("I8", 100) != b"".join(pool.pieces("other", "I8", 100))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiny")
    make_qwen3(root, TINY, tokens=600)
    return root


def test_the_library_reads_the_shards(tiny: Path) -> None:
    index = json.loads((tiny / "draft" / "model.safetensors.index.json").read_text())
    shapes = {}
    for path in sorted((tiny / "draft").glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                assert index["weight_map"][name] == path.name
                shapes[name] = tuple(file.get_tensor(name).shape)
    assert set(shapes) == set(index["weight_map"])
    assert shapes["layers.4.self_attn.q_proj.weight"] == (256, 64)
    assert shapes["layers.4.self_attn.o_proj.weight"] == (64, 256)
    assert shapes["fc.weight"] == (64, 320)
    assert shapes["confidence_head.proj.weight"] == (1, 320)


def test_a_tokenizer_of_real_size(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    write_tokenizer(tmp_path, 5000)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 5003
    assert max(map(len, tokenizer.get_vocab(with_added_tokens=False))) <= MAX_TOKEN_LENGTH
    text = "It merges nothing.\n\t1234 ünïcödé 漢字"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    kvs = {kv.key: kv.value for kv in from_directory(tmp_path, 5010).kvs}
    assert len(kvs["tokenizer.ggml.merges"]) == 5000 - 256
    assert kvs["tokenizer.ggml.pre"] == "qwen2"
    assert kvs["tokenizer.ggml.tokens"][5002:5004] == ["<|im_end|>", "[PAD5003]"]


def test_a_deepseek_checkpoint(tmp_path: Path) -> None:
    sizes = Sizes(
        hidden=256, experts=4, expert_width=128, heads=8, head_dim=64, q_rank=128, o_rank=64, vocab=2000, rank=32
    )
    make_deepseek4(tmp_path, sizes)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {path.name for path in tmp_path.glob("*.safetensors")}
    assert (tmp_path / "model-00002-of-00003.safetensors").stat().st_size > nbytes_of(deepseek4.stages(sizes)[1])
    config = json.loads((tmp_path / "config.json").read_text())
    assert 1000 < config["dspark_noise_token_id"] < 2000
