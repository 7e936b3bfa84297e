"""What is read of a target, from its config.json or its GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError, UsageError
from dspark_convert.pair.llama import is_tappable
from dspark_convert.target import Target, open_target_directory, open_target_gguf
from tests.checkpoints import Pair
from tests.refusals.test_target import edit_gguf


def opened(root: Path, config: dict[str, Any]) -> Target:
    root.mkdir(exist_ok=True)
    (root / "config.json").write_text(json.dumps(config))
    return open_target_directory(root)


def test_directory_and_gguf_of_one_model_agree(pair: Pair) -> None:
    directory, gguf = open_target_directory(pair.target), open_target_gguf(pair.gguf)
    assert (directory.is_gguf, gguf.is_gguf) == (False, True)
    assert directory.provenance.name == gguf.provenance.name == "target"
    for target in (directory, gguf):
        assert (target.architecture, target.hidden_size, target.n_layer, target.vocab_size) == ("qwen3", 128, 4, 512)
        assert (target.tied, target.mrope, target.transforms) == (False, False, ())


def test_text_model_inside_a_larger_one(tmp_path: Path) -> None:
    """Qwen3.6's form: sizes in text_config, and the name that llama.cpp knows outside."""
    target = opened(
        tmp_path / "t",
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "tie_word_embeddings": False,
            "text_config": {
                "architectures": None,
                "model_type": "qwen3_5_text",
                "hidden_size": 5120,
                "num_hidden_layers": 64,
                "vocab_size": 248320,
                "rope_parameters": {"mrope_section": [11, 11, 10], "rope_theta": 1e7},
            },
            "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
        },
    )
    assert (target.hidden_size, target.n_layer, target.vocab_size) == (5120, 64, 248320)
    assert target.architecture == "qwen3_5"
    assert is_tappable(target.architecture)
    assert target.mrope is True
    assert target.tied is False


@pytest.mark.parametrize(
    ("named", "means"),
    [("DeepseekV4ForCausalLM", "deepseekv4"), ("Qwen3ForCausalLM", "qwen3"), ("Some", "Some")],
)
def test_without_a_model_type_the_class_tells(named: str, means: str, tmp_path: Path) -> None:
    target = opened(tmp_path / "t", {"architectures": [named]})
    assert target.architecture == means
    assert is_tappable(target.architecture) is (means != "Some")


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size"])
@pytest.mark.parametrize("value", [0, -1, "128", 1.5, True, None, [1]])
def test_sizes_that_are_none_are_not_known(key: str, value: Any, tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 16}
    target = opened(tmp_path / "t", {**sizes, key: value})
    got = {"hidden_size": target.hidden_size, "num_hidden_layers": target.n_layer, "vocab_size": target.vocab_size}
    assert got == {**sizes, key: None}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"architectures": []},
        {"architectures": "Qwen3"},
        {"architectures": [None]},
        {"text_config": [1], "rope_parameters": 7, "rope_scaling": "x"},
    ],
)
def test_odd_configs_do_no_harm(config: dict[str, Any], tmp_path: Path) -> None:
    target = opened(tmp_path / "t", config)
    assert (target.hidden_size, target.mrope, target.tied) == (None, False, False)
    assert target.architecture in ("unknown", "None")


@pytest.mark.parametrize("name", ["Qwen3DSparkModel", "DFlashDraftModel", "Gemma4DSparkModel"])
def test_a_draft_is_no_target(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"itself a draft \\({name}\\)"):
        opened(tmp_path / "t", {"architectures": [name]})


def test_names_of_things_that_are_no_target(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        open_target_directory(tmp_path / "nothing")
    with pytest.raises(UsageError, match="does not exist"):
        open_target_gguf(tmp_path / "nothing.gguf")
    with pytest.raises(UsageError, match="--target-model-dir"):
        open_target_gguf(tmp_path)


def test_gguf_tells_ties_sections_and_transforms(pair: Pair) -> None:
    edit_gguf(pair.gguf, **{"prism.hadamard.seed": 7, "general.name": ""})  # and without any tensor
    target = open_target_gguf(pair.gguf)
    assert target.tied is True
    assert target.transforms == ("prism.hadamard.seed",)
    assert target.provenance.name == "target"


def test_gguf_names_its_repository(pair: Pair) -> None:
    edit_gguf(pair.gguf, **{"general.source.huggingface.repository": "Qwen/Qwen3-4B", "general.name": "Qwen3 4B"})
    target = open_target_gguf(pair.gguf)
    assert (target.provenance.name, target.provenance.repo) == ("Qwen3 4B", "Qwen/Qwen3-4B")


@pytest.mark.parametrize("value", [5, "abc", True], ids=str)
def test_gguf_with_scalars_where_lists_belong(value: object, pair: Pair) -> None:
    edit_gguf(pair.gguf, **{"tokenizer.ggml.tokens": value, "qwen3.rope.dimension_sections": value})
    target = open_target_gguf(pair.gguf)
    assert (target.vocab_size, target.mrope) == (None, False)


def test_scales_of_embeddings_and_logits(tmp_path: Path) -> None:
    muse = opened(tmp_path / "muse", {"hidden_size": 16, "output_multiplier": 0.25, "final_logit_softcapping": 20.0})
    assert (muse.embedding_scale, muse.logit_scale, muse.logit_softcap) == (None, 0.25, 20.0)
    gemma = opened(tmp_path / "gemma", {"model_type": "gemma4", "hidden_size": 16, "final_logit_softcapping": None})
    assert (gemma.embedding_scale, gemma.logit_scale, gemma.logit_softcap) == (4.0, None, None)


def test_base_of_rotation_in_every_spelling(pair: Pair, tmp_path: Path) -> None:
    assert open_target_gguf(pair.gguf).rope_theta == open_target_directory(pair.target).rope_theta == 10_000
    assert opened(tmp_path / "old", {"rope_theta": 5e5, "rope_scaling": None}).rope_theta == 5e5
    for odd in ("1e4", True, -1, 10**400, None):
        assert opened(tmp_path / f"{type(odd)}{str(odd)[:5]}", {"rope_theta": odd}).rope_theta is None
