"""How a config is read: every spelling of every fact, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from dspark_convert.reference.draft import Reference
from dspark_convert.reference.facts import Facts, read_facts
from tests.reference import miniature as mini

PUBLISHED = Path(__file__).parents[2] / "fixtures" / "published"


def facts_of(directory: Path, config: dict[str, Any], tensors: mini.Tensors | None = None) -> Facts:
    """``config`` over the miniature draft's; a value of None takes the key away."""
    own, drawn = mini.draft()
    merged = {key: value for key, value in (own | config).items() if value is not None}
    return read_facts(mini.write(directory / "draft", merged, drawn if tensors is None else tensors))


def test_facts_of_the_miniature(tmp_path: Path) -> None:
    assert asdict(facts_of(tmp_path, {})) == {
        "block_size": 3,
        "sample_from_anchor": True,
        "taps": (0, 1),
        "mask_token_id": 5,
        "vocab_size": 6,
        "hidden_size": 4,
        "intermediate_size": 3,
        "n_layer": 1,
        "n_head": 1,
        "n_head_kv": 1,
        "head_dim": 2,
        "attention_bias": False,
        "rms_norm_eps": 0.01,
        "rope_theta": 10000.0,
        "context_length": 64,
        "markov_rank": 2,
        "has_confidence_head": True,
        "confidence_with_markov": True,
        "num_target_layers": 1,
        "causal": False,
        "views": ({"window": None, "causal": False},),
        "window_from_block": False,
        "rotation": {"theta": 10000.0, "dims": 2, "neighbours": False, "divisor": 1.0, "yarn": None},
        "has_sinks": False,
        "value_scale": 1.0,
        "draft_vocab_size": None,
        "stages": None,
        "gemma4": None,
        "dflash2": None,
        "embedding_scale": 1.0,
        "logit_scale": 1.0,
        "logit_cap": None,
    }


@pytest.mark.parametrize("architecture", ["Qwen3DSparkModel", "DSparkDraftModel", "DFlashDraftModel"])
@pytest.mark.parametrize("rank", [0, 2])
def test_anchor_rule_without_a_flag(tmp_path: Path, architecture: str, rank: int) -> None:
    config, w = mini.draft("none", rank, architectures=[architecture])
    facts = read_facts(mini.write(tmp_path / "draft", config, w))
    from_anchor = rank > 0 or architecture != "DFlashDraftModel"
    assert (facts.sample_from_anchor, facts.first_slot, facts.slots) == (from_anchor, int(not from_anchor), 3)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"sample_from_anchor": False}, False),
        ({"dflash_config": {"sample_from_anchor": False}}, False),
        ({"dspark_bonus_anchor": True}, False),
        ({"dspark_bonus_anchor": False}, True),
        ({"dflash_config": {"dspark_bonus_anchor": True}}, False),
        # the flag before its opposite, the top before what is nested
        ({"dspark_bonus_anchor": True, "dflash_config": {"sample_from_anchor": True}}, True),
        ({"sample_from_anchor": True, "dflash_config": {"sample_from_anchor": False}}, True),
    ],
)
def test_anchor_flag(tmp_path: Path, config: dict[str, Any], expected: bool) -> None:
    assert facts_of(tmp_path, config).sample_from_anchor is expected


@pytest.mark.parametrize(
    ("config", "name", "expected"),
    [
        ({"target_layer_ids": None, "dflash_config": {"target_layer_ids": [0, -1]}}, "taps", (1, 0)),
        ({"target_layer_ids": None, "eagle_aux_hidden_state_layer_ids": [1, 0]}, "taps", (1, 0)),
        ({"target_layer_ids": None, "aux_hidden_state_layer_ids": [0, 1]}, "taps", (0, 1)),
        ({"dflash_config": {"target_layer_ids": [-1, 0]}, "eagle_aux_hidden_state_layer_ids": [0, 1]}, "taps", (0, 1)),
        ({"target_layer_ids": [40, 41], "num_target_layers": None}, "taps", (41, 42)),
        ({"mask_token_id": None, "dflash_config": {"mask_token_id": 0}}, "mask_token_id", 0),
        ({"mask_token_id": 4, "dflash_config": {"mask_token_id": 3}}, "mask_token_id", 4),
        ({"block_size": None, "dflash_config": {"block_size": 9}}, "block_size", 9),
        ({"markov_rank": None}, "markov_rank", 2),
        ({"markov_rank": None, "dflash_config": {"markov_rank": 2}}, "markov_rank", 2),
        ({"rope_parameters": None, "rope_theta": 5000}, "rope_theta", 5000.0),
        ({"rope_parameters": {"rope_theta": 7.0}, "rope_theta": 5000}, "rope_theta", 7.0),
        ({"rope_parameters": {"full_attention": {"rope_theta": 8, "rope_type": "default"}}}, "rope_theta", 8.0),
        ({"rope_scaling": {"rope_type": "default"}}, "rope_theta", 10000.0),
        # inherited from a Qwen3.5 target, and without effect on a Qwen3 layer
        ({"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.25, "mrope_section": [1]}}, "head_dim", 2),
        ({"head_dim": None}, "head_dim", 2),
        ({"num_key_value_heads": None}, "n_head_kv", 1),
        ({"num_target_layers": None}, "num_target_layers", None),
        ({"num_target_layers": None, "dflash_config": {"num_target_layers": 4}}, "num_target_layers", 4),
        ({"enable_confidence_head": True, "confidence_head_with_markov": True}, "has_confidence_head", True),
    ],
)
def test_spellings(tmp_path: Path, config: dict[str, Any], name: str, expected: object) -> None:
    assert getattr(facts_of(tmp_path, config), name) == expected


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"architectures": ["Qwen35DSparkModel"]}, "not the draft class Qwen35DSparkModel"),
        ({"architectures": None}, "architectures has to be a list of one class name, found nothing"),
        ({"transformer_layer_config": 3}, "transformer_layer_config has to be an object, found 3"),
        ({"is_causal": 1}, "is_causal has to be true or false, found 1"),
        ({"use_sliding_window": True}, "layer_types has to be there if use_sliding_window is true, found nothing"),
        ({"dflash_config": {"use_swa": True}}, "sliding_window has to be a whole number of at least 1, found nothing"),
        ({"layer_types": ["sliding_attention"], "sliding_window": 0}, "sliding_window has to be a whole number"),
        ({"layer_types": ["linear_attention"]}, "layer_types has to be full_attention or sliding_attention for each"),
        ({"layer_types": []}, "for each of 1 layers"),
        ({"layer_types": 3}, "layer_types"),
        ({"log_snr_conditioning": True}, "log-SNR conditioning"),
        ({"attention_sink_bias": True}, "lacks tensor layers.0.self_attn.attention_sink_bias"),
        ({"v_head_dim": 4}, "v_head_dim has to be the head_dim, 2, found 4"),
        ({"target_hidden_size": 8}, "target_hidden_size has to be the hidden_size, 4, found 8"),
        ({"hidden_act": "gelu"}, "hidden_act has to be silu, found 'gelu'"),
        ({"markov_head_type": "gated"}, "vanilla Markov head only, not 'gated'"),
        ({"dflash_config": {"markov_head_type": "rnn"}}, "vanilla Markov head only, not 'rnn'"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}}, "factor has to be a positive number, found"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "llama3"}}, "RoPE scaling .rope_parameters of type"),
        ({"rope_scaling": {"factor": 2.0}}, "RoPE scaling"),
        ({"rope_is_neox_style": False, "rope_interleaved": False}, "the opposite of rope_interleaved"),
        ({"rope_parameters": None}, "rope_theta has to be a positive number, found nothing"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps has to be a positive number"),
        ({"rms_norm_eps": 0}, "rms_norm_eps has to be a positive number, found 0"),
        ({"block_size": True}, "block_size has to be a whole number of at least 1, found True"),
        ({"block_size": 0}, "block_size has to be a whole number of at least 1, found 0"),
        ({"block_size": 1, "sample_from_anchor": False}, "drafts nothing"),
        ({"sample_from_anchor": "yes"}, "sample_from_anchor has to be true or false, found 'yes'"),
        ({"mask_token_id": 6}, "mask_token_id has to be below the vocab_size 6, found 6"),
        ({"mask_token_id": None}, "mask_token_id has to be a whole number of at least 0, found nothing"),
        ({"target_layer_ids": None}, "target_layer_ids has to be a list of whole numbers, found nothing"),
        ({"target_layer_ids": []}, "target_layer_ids has to be a list of whole numbers"),
        ({"target_layer_ids": [1.0]}, "target_layer_ids has to be a list of whole numbers"),
        ({"target_layer_ids": [0, 1]}, r"inputs of layers \[1, 2\], but the target has no 2"),
        ({"target_layer_ids": [-2, 0]}, "the target has no -1"),
        ({"dflash_config": {"target_layer_ids": [0, 1]}}, r"means the layer inputs \[0, 1\], dflash_config"),
        ({"draft_vocab_size": 5}, "lacks tensor d2t, but draft_vocab_size is 5"),
        ({"num_key_value_heads": 2}, "do not fit together"),
        ({"markov_rank": 3}, "markov_rank is 3, but markov_head.markov_w1.weight has 2 columns"),
        ({"enable_confidence_head": False}, "enable_confidence_head is false, but there is a tensor"),
        ({"confidence_head_with_markov": False}, "confidence_head_with_markov is false, but"),
    ],
)
def test_what_is_refused(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        facts_of(tmp_path, config)
    message = str(error.value)
    assert message.endswith(".") and ". " not in message and "\n" not in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"markov_head.gate_proj.weight": np.zeros((2, 6))}, "vanilla Markov head only, not gate_proj"),
        ({"markov_head.joint_proj.weight": np.zeros((6, 8))}, "vanilla Markov head only, not joint_proj"),
        ({"markov_head.markov_w1.weight": None}, "lacks tensor markov_head.markov_w1.weight, but markov_rank is 2"),
        ({"markov_head.markov_w2.weight": None}, "lacks tensor markov_head.markov_w2.weight"),
        ({"markov_head.markov_w1.weight": np.float64(1)}, "markov_head.markov_w1.weight"),
        ({"confidence_head.proj.weight": None}, "does not know what tensor confidence_head.proj.bias does"),
        ({"confidence_head.proj.weight": np.zeros((1, 7))}, r"confidence_head.proj.weight has to be \[1, 6\]"),
        ({"fc.weight": None}, "lacks tensor fc.weight"),
        ({"layers.0.mlp.up_proj.weight": np.zeros((4, 3))}, r"up_proj.weight has to be \[3, 4\], found \[4, 3\]"),
        ({"layers.0.self_attn.sinks": np.zeros(2)}, r"layers.0.self_attn.attention_sink_bias has to be \[1\]"),
        ({"layers.1.self_attn.sinks": np.zeros(1)}, "does not know what tensor layers.1.self_attn.attention_sink_bias"),
        ({"log_snr_embed.fc1.weight": np.zeros(2)}, "log-SNR conditioning"),
        ({"layers.0.self_attn.q_proj.bias": np.zeros(2)}, "lacks tensor layers.0.self_attn.k_proj.bias"),
        ({"d2t": np.zeros(6, np.float64)}, "cannot compute with d2t of type F64"),
        # with as many tokens as d2t has, where the config does not say how many
        ({"d2t": np.zeros(5, np.int64)}, r"lm_head.weight has to be \[5, 4\], found \[6, 4\]"),
        ({"d2t": np.array([0, 0, 0, 0, 0, -1])}, "d2t does not lead to 6 of the target's 6 tokens"),
        ({"d2t": np.array([0, 0, 0, 0, 0, 1])}, "d2t does not lead to 6"),
        ({"fc.weight": np.zeros((4, 8), np.int8)}, "cannot compute with fc.weight of type I8"),
        ({"model.fc.weight": np.zeros((4, 8))}, "is there twice"),
    ],
)
def test_tensors_that_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    config, w = mini.draft()
    tensors = {name: np.asarray(t) for name, t in (w | change).items() if t is not None}
    with pytest.raises(ValueError, match=words):
        Reference.load(mini.write(tmp_path / "draft", config, tensors))


@pytest.mark.parametrize(
    "content", [b"[]", b"{", b"\xff\xfe\xfd", b"[" * 100_000, None], ids=lambda content: str(content)[:8]
)
def test_config_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    directory = mini.write(tmp_path / "draft", *mini.draft())
    (directory / "config.json").unlink()
    if content is not None:
        (directory / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config.json"):
        read_facts(directory)


def test_directories_without_readable_tensors(tmp_path: Path) -> None:
    directory = mini.write(tmp_path / "draft", *mini.draft())
    (directory / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read as a safetensors file"):
        read_facts(directory)
    (directory / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="holds no safetensors file"):
        read_facts(directory)
    index = directory / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"fc.weight": "shard.safetensors"}}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"shard.safetensors is named in model.safetensors.index.json"):
        read_facts(directory)
    index.write_text('{"weight_map": 3}', encoding="utf-8")
    with pytest.raises(ValueError, match="no weight_map"):
        read_facts(directory)


#: name -> (rank, taps, mask, block size); all of DeepSpec's class, so read from the anchor
DEEPSPEC = {
    "dspark_qwen3_4b_block7": (256, (2, 10, 18, 26, 34), 151669, 7),
    "dspark_qwen3_8b_block7": (256, (2, 10, 18, 26, 34), 151669, 7),
    "dflash_qwen3_8b_block7": (0, (2, 10, 18, 26, 34), 151669, 7),
    "satgeze_qwen3.6_27b_dspark": (256, (2, 17, 32, 47, 62), 248070, 15),
}


@pytest.mark.parametrize("name", sorted(DEEPSPEC))
def test_published_configs(tmp_path: Path, name: str) -> None:
    """The facts of published configs, over headers of the sizes that decide (no file has their tensors)."""
    config = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))["config"]
    rank = DEEPSPEC[name][0]
    tensors: dict[str, Any] = {}
    if rank:
        tensors["markov_head.markov_w1.weight"] = np.zeros((1, rank), np.float16)
        tensors["confidence_head.proj.weight"] = np.zeros((1, config["hidden_size"] + rank), np.float16)
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors or {"x": np.zeros(1)}, tmp_path / "model.safetensors")
    facts = read_facts(tmp_path)
    assert (facts.markov_rank, facts.taps, facts.mask_token_id, facts.block_size) == DEEPSPEC[name]
    assert facts.sample_from_anchor and not facts.causal
    assert facts.has_confidence_head == facts.confidence_with_markov == (rank > 0)
    assert facts.rope_theta == config["rope_parameters"]["rope_theta"]
