"""DeepSeek-V4 stages in a GGUF: what is read of them, in the published layout and in those of forks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dspark_convert.draft import DeepSeek4, Draft, Rope
from dspark_convert.ggufio.dialects import Reading, read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.lint import lint
from tests.draft_file import STRING, U32, DraftFile
from tests.stage_file import FLASH, StageFile, published_flash, write_header

SMALL_DRAFT = Draft(
    kind="dspark",
    backbone="deepseek4",
    block_size=5,
    sample_from_anchor=True,
    target_layers=(2, 3, 4),
    mask_token_id=93,
    markov_rank=32,
    markov_head_type="vanilla",
    has_confidence_head=True,
    vocab_size=96,
    draft_vocab_size=96,
    hidden_size=64,
    intermediate_size=32,
    n_layer=3,
    n_head=4,
    n_head_kv=1,
    head_dim=32,
    context_length=4096,
    rms_norm_eps=pytest.approx(1e-6),  # type: ignore[arg-type]
    rope=Rope("norm", 16, 10000.0),
    sliding_window=8,
    has_sinks=True,
    deepseek4=DeepSeek4(
        q_lora_rank=32,
        o_group_count=2,
        o_lora_rank=32,
        n_expert=4,
        n_expert_used=2,
        n_expert_shared=1,
        expert_weights_scale=1.5,
        expert_weights_norm=True,
        swiglu_clamp=10.0,
        hyper_connections=4,
        sinkhorn_iterations=20,
        hyper_connection_epsilon=pytest.approx(1e-6),  # type: ignore[arg-type]
    ),
)


def reading(file: DraftFile, path: Path) -> Reading:
    with open_gguf(file.write(path)) as gguf:
        return read_draft(gguf)


def test_every_field(tmp_path: Path) -> None:
    found = reading(StageFile(), tmp_path / "x.gguf")
    assert (found.draft, found.findings) == (SMALL_DRAFT, ())


def test_the_published_flash_draft(tmp_path: Path) -> None:
    file = published_flash()
    assert len(file.tensors) == 81
    path = write_header(file, tmp_path / "dspark-flash.gguf")
    with open_gguf(path) as gguf:
        found = read_draft(gguf)
        told = lint(gguf, found)
        weights = sum(tensor.nbytes for tensor in gguf.tensors)
    assert SMALL_DRAFT.deepseek4 is not None
    assert found.draft == replace(
        SMALL_DRAFT,
        target_layers=(41, 42, 43),
        mask_token_id=128799,
        markov_rank=256,
        vocab_size=129280,
        draft_vocab_size=129280,
        hidden_size=4096,
        intermediate_size=2048,
        n_head=64,
        head_dim=512,
        context_length=1048576,
        rope=Rope("norm", 64, 10000.0),
        sliding_window=128,
        deepseek4=replace(
            SMALL_DRAFT.deepseek4, q_lora_rank=1024, o_group_count=8, o_lora_rank=1024, n_expert=256, n_expert_used=6
        ),
    )
    assert {(finding.rule, finding.severity) for finding in told} == {
        ("rope-scaling-unread", "info"),
        ("key-default", "warning"),
        ("heads-bf16", "info"),
    }
    assert round(weights / 1e9, 2) == 10.89


def test_a_count_of_none_makes_no_stages(tmp_path: Path) -> None:
    """llama.cpp builds layers like Qwen3's then, and looks for a feed-forward of its own."""
    file = StageFile()
    file.kv["dflash.hyper_connection.count"] = (U32, 0, None)
    found = reading(file, tmp_path / "x.gguf")
    assert {(finding.rule, finding.where) for finding in found.findings} >= {
        ("key-missing", "dflash.feed_forward_length")
    }


@pytest.mark.parametrize("name", ["dflash.rope.dimension_count", "dflash.attention.head_count_kv"])
def test_what_is_missing_means_what_llama_cpp_takes_it_to_mean(tmp_path: Path, name: str) -> None:
    file = StageFile()
    del file.kv[name]
    draft = reading(file, tmp_path / "x.gguf").draft
    assert draft is not None
    assert (draft.rope.dimension_count, draft.n_head_kv) in ((32, 1), (16, 4))


def test_no_vocabulary_but_its_size(tmp_path: Path) -> None:
    """As SlimServe publishes the draft of Flash-0731."""
    file = StageFile(FLASH)
    file.kv["tokenizer.ggml.model"] = (STRING, "no_vocab", None)
    del file.kv["tokenizer.ggml.tokens"], file.kv["tokenizer.ggml.token_type"], file.kv["tokenizer.ggml.pre"]
    file.kv["dflash.vocab_size"] = (U32, 129280, None)
    with open_gguf(write_header(file, tmp_path / "dspark-x.gguf")) as gguf:
        found = read_draft(gguf)
        told = lint(gguf, found)
    assert found.draft is not None
    assert (found.draft.vocab_size, found.draft.mask_token_id) == (129280, 128799)
    (finding,) = (finding for finding in told if finding.severity == "error")
    assert finding.rule == "vocabulary-missing"
    assert "'no_vocab', with which llama.cpp has no mask token" in finding.message


def test_sinks_without_their_suffix_are_sinks(tmp_path: Path) -> None:
    """TensorSharp's spelling, in a draft that is not DeepSeek's."""
    file = DraftFile()
    file.tensors["blk.0.attn_sinks"] = ("F32", (4,))
    draft = reading(file, tmp_path / "x.gguf").draft
    assert draft is not None
    assert draft.has_sinks
    draft = reading(DraftFile(), tmp_path / "y.gguf").draft
    assert draft is not None
    assert not draft.has_sinks
