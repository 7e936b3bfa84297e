"""What dspark-inspect says in words of a file of each published family."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.cli.describe import meaning_fields, next_step
from dspark_convert.inspection import inspect_file
from tests.family_file import FAMILIES

#: family -> line -> what stands in it
WORDS: dict[str, dict[str, str]] = {
    "dspark": {"runs on": "llama.cpp from b10335 on"},
    "dflash": {
        "kind": "DFlash draft",
        "block": "7 slots, 6 drafts a round, the first at the slot after the anchor",
        "heads": "none of its own",
    },
    "speculators-dflash": {
        "attention": "causal within the block in layer 0 only (llama.cpp runs all both ways), a window of 128 in layer",
        "vocabulary": "80 tokens, of which it drafts 40",
        "shared tensors": "embeddings and head are its own",
    },
    "speculators-dspark": {
        "block": "7 slots, 6 drafts a round, the first at the slot after the anchor",
        "attention": "causal within the block, a window of 128 in all layers, context 4,096",
        "vocabulary": "80 tokens, of which it drafts 40",
    },
    "nemotron": {
        "attention": "causal within the block, a window of 128 in all layers, with sinks",
        "confidence head": "none",
        "weights": "NVFP4 ",
    },
    "mimo": {
        "RoPE": "NeoX pairs (i, i + n/2), 8 of 16 dimensions, base 1,000,000",
        "scales": "its output times 0.612",
        "attention": "both ways within the block, a window of 128 in all layers, with sinks",
    },
    "kimi": {"RoPE": "scaled YaRN 16 times from 256 positions, lengthened 1.5 times"},
    "dflash2": {
        "kind": "DFlash2 draft",
        "selector": "rank 8, the best 7 tokens a slot (F32)",
        "convolution": "over 3 slots around attention and FFN, coefficients for every 16 channels",
        "scales": "embeddings times 2, logits times 0.25, logits capped at 20",
    },
    "gemma4": {
        "network": "gemma4, 2 layers of 64, 4 heads of 16 over 2, FFN 96 with GELU, keys serve as values",
        "RoPE": "4 of 16 dimensions, base 1,000,000, at the frequencies of the whole head",
        "scales": "attention's scores times 1, embeddings times 8",
    },
}

MARKOV = ("dspark", "speculators-dspark", "nemotron", "kimi", "gemma4")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_in_words(tmp_path: Path, family: str) -> None:
    kind = "dspark" if family in MARKOV else "dflash"
    path = FAMILIES[family]().write(tmp_path / f"{kind}-x.gguf")
    inspection = inspect_file(path)
    words = dict(meaning_fields(inspection))
    for line, text in WORDS[family].items():
        assert text in words[line]
    # No build is named that was not measured with such a draft.
    first = "llama.cpp from b10335 on"
    assert words["runs on"] == (first if family in ("dspark", "dflash", "kimi") else "recent llama.cpp, e.g. b11549")
    drafts = 7 if family in ("dspark", "kimi", "gemma4") else 6
    command = (
        f"llama-server -m TARGET.gguf --spec-draft-model {path} --spec-type draft-{kind} --spec-draft-n-max {drafts}"
    )
    assert next_step(inspection) == ("Run it with", command)


def test_a_cap_that_llama_cpp_leaves_out_is_named_as_such(tmp_path: Path) -> None:
    file = FAMILIES["gemma4"]()
    file.kv["dflash.final_logit_softcapping"] = (6, 30.0, None)
    words = dict(meaning_fields(inspect_file(file.write(tmp_path / "dspark-x.gguf"))))
    assert words["scales"].endswith("logits capped at 30 (not by llama.cpp)")


def test_many_layers_are_counted(tmp_path: Path) -> None:
    file = FAMILIES["speculators-dflash"]()
    file.kv["dflash.block_count"] = (4, 12, None)
    for key in ("dspark.causal_pattern", "dflash.attention.sliding_window_pattern"):
        file.kv[key] = (9, [True] * 11 + [False], 7)
    words = dict(meaning_fields(inspect_file(file.write(tmp_path / "dflash-x.gguf"))))
    assert "in 11 of 12 layers only" in words["attention"]
