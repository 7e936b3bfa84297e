"""Directories in words."""

from __future__ import annotations

from typing import Any

import pytest

from dspark_convert.source.classify import describe, is_full_model, names_draft

LAYERS = [f"layers.{i}.self_attn.q_proj.weight" for i in range(3)]


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["embed_tokens.weight", "norm.weight", *LAYERS], "a full model (X, 3 layers), not a DSpark draft"),
        (["fc.weight", "hidden_norm.weight", *LAYERS], "a DFlash draft (X)"),
        (["fc.weight", "markov_head.markov_w1.weight"], "a DSpark draft (X)"),
        (["fc.weight", "logit_head.markov_head.markov_w1.weight"], "a DSpark draft (X)"),
        (["fc.weight", "candidate_selector.hidden.weight"], "a DFlash2 draft (X)"),
        (["fc.weight", "markov_head.markov_w1.weight", "log_snr_embed.fc1.weight"], "a DSpark draft with log-SNR"),
        (["mtp.0.main_proj.weight", "mtp.2.markov_head.markov_w1.weight"], "a DeepSeek-V4 checkpoint with DSpark"),
        (["mtp.2.markov_head.markov_w1.weight"], "a DeepSeek-V4 checkpoint with DSpark stages in it (X)"),
        (["mtp.1.attn_norm.weight"], "a checkpoint with mtp.* layers, but neither the first nor the last stage"),
        (["mtp.0.e_proj.weight"], "a checkpoint with ordinary MTP layers and no DSpark draft (X)"),
        (["embed.weight", "layers.0.ffn_norm.weight"], "a full model (X, 1 layers), not a DSpark draft"),
        (["mtp.0.enorm.weight", "mtp.0.eh_proj.weight"], "a checkpoint with ordinary MTP layers and no DSpark"),
        (["base_model.layers.0.q_proj.lora_A.weight"], "a LoRA adapter"),
        ([], "a checkpoint without tensors (X)"),
        (
            ["draft.ema_decay", "draft.fc.weight", "model.head"],
            "no draft that this tool knows (X; tensors such as draft.fc.weight)",
        ),
        (["a", "x.markov_w1"], "no draft that this tool knows (X; tensors such as x.markov_w1)"),
        (["a", "x.layers.0.q"], "no draft that this tool knows (X; tensors such as x.layers.0.q)"),
        (["encoder.block.0.weight"], "no draft that this tool knows (X; tensors such as encoder.block.0.weight)"),
    ],
)
def test_describe(names: list[str], what: str) -> None:
    assert describe({"architectures": ["X"]}, set(names)).startswith(what)


@pytest.mark.parametrize("architectures", [None, [], "Qwen3", 7, {}])
def test_no_architecture(architectures: Any) -> None:
    assert "no architecture named" in describe({"architectures": architectures}, {"fc.weight"})


def test_full_model() -> None:
    assert is_full_model({"embed_tokens.weight", *LAYERS})
    assert not is_full_model({"embed_tokens.weight", "fc.weight", *LAYERS})
    assert not is_full_model({"embed_tokens.weight"})


@pytest.mark.parametrize(
    ("architectures", "is_one"),
    [
        (["Qwen3DSparkModel"], True),
        (["DFlash2DraftModel"], True),
        (["Other", "MuseGlimmerAssistantModel"], True),
        (["MuseGlimmerForConditionalGeneration"], False),
        (["Qwen3ForCausalLM"], False),
        (None, False),
    ],
)
def test_names_of_drafts(architectures: Any, is_one: bool) -> None:
    assert names_draft({"architectures": architectures}) is is_one
