"""One draft, its config spelt in every way that trainers do: the converter and the reference read it alike.

They share no code. Each reads the spelling by itself; the file then says, holds and computes what the
reference does, or the check that differs names the key.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.runtime.parity_case import Config, Shape, edit, make, prove, put

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = Shape(draft_layers=1, intermediate_size=64, block_size=5)
RANK_0 = Shape(draft_layers=1, intermediate_size=64, block_size=5, markov_rank=0)
HIDDEN_ONLY = Shape(draft_layers=1, intermediate_size=64, block_size=5, confidence="hidden_only")


def drop(*keys: str) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        for key in keys:
            del config[key]

    return change


def nest(*keys: str) -> Callable[[Config], None]:
    """Moves keys into ``dflash_config``."""
    return lambda config: config.update(dflash_config={key: config.pop(key) for key in keys})


def old_rope(config: Config) -> None:
    """As transformers 4 writes it."""
    config.update(rope_theta=config.pop("rope_parameters")["rope_theta"], rope_scaling=None)


def rope_of_a_kind(config: Config) -> None:
    """As transformers 5 writes it for models of several kinds of layers."""
    config["rope_parameters"] = {"full_attention": {"rope_theta": 5e5, "rope_type": "default"}}


#: name -> shape, change of the config, positions that are drafted
SPELLINGS: dict[str, tuple[Shape, Callable[[Config], None], int]] = {
    "as DeepSpec writes it": (PLAIN, put(), 5),
    "rope_theta at the top": (PLAIN, old_rope, 5),
    "rope_theta for a kind of layer": (PLAIN, rope_of_a_kind, 5),
    "block, mask and taps nested": (PLAIN, nest("block_size", "mask_token_id", "target_layer_ids"), 5),
    "heads nested": (PLAIN, nest("markov_rank", "markov_head_type", "enable_confidence_head"), 5),
    "heads unsaid": (
        PLAIN,
        drop("markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov"),
        5,
    ),
    "hidden-only confidence unsaid": (HIDDEN_ONLY, drop("enable_confidence_head", "confidence_head_with_markov"), 5),
    "anchor said": (PLAIN, put(sample_from_anchor=True), 5),
    "bonus anchor": (PLAIN, put(sample_from_anchor=False), 4),
    "bonus anchor, nested": (PLAIN, put(dflash_config={"sample_from_anchor": False}), 4),
    "bonus anchor, the other way round": (PLAIN, put(dspark_bonus_anchor=True), 4),
    "bonus anchor, hidden-only confidence": (HIDDEN_ONLY, put(sample_from_anchor=False), 4),
    "anchor, the other way round": (PLAIN, put(dspark_bonus_anchor=False), 5),
    "rank 0, bonus anchor": (RANK_0, put(sample_from_anchor=False), 4),
    "rank 0, unsaid": (RANK_0, drop("markov_rank"), 5),
    "an inherited partial rotation": (PLAIN, put(partial_rotary_factor=0.25), 5),
    "no target layers": (PLAIN, put(num_target_layers=None), 5),
    "another epsilon": (PLAIN, put(rms_norm_eps=1e-5), 5),
    "another base": (PLAIN, put(rope_parameters={"rope_theta": 5e6, "rope_type": "default"}), 5),
    "another mask": (PLAIN, put(mask_token_id=3), 5),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling_is_read_alike(name: str, tmp_path: Path) -> None:
    shape, change, positions = SPELLINGS[name]
    parity = prove(edit(make(shape, tmp_path), change), tmp_path)
    assert [p["position"] for p in parity["positions"]] == list(range(positions))


@pytest.mark.parametrize("kind", ["shards", "no head_dim", "no kv heads"])
def test_layout_is_read_alike(kind: str, tmp_path: Path) -> None:
    pair = make(Shape(kv_heads=4) if kind == "no kv heads" else PLAIN, tmp_path)
    if kind == "shards":
        split(pair.draft_dir)
    else:
        edit(pair, drop({"no head_dim": "head_dim", "no kv heads": "num_key_value_heads"}[kind]))
    prove(pair, tmp_path)


def split(directory: Path) -> None:
    """One file into two and an index, every other tensor in the second."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    path.unlink()
    names = sorted(tensors)
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, directory / file)
    index = json.dumps({"metadata": {}, "weight_map": files})
    (directory / "model.safetensors.index.json").write_text(index, encoding="utf-8")
