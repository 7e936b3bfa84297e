"""A file's meaning: from hand-made files, and from what the oracle writes for each outtype and dialect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark_convert.draft import Draft, Rope
from dspark_convert.errors import InputError
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.lint import lint
from fixtures.target_gguf import write_target_gguf
from fixtures.tiny import make_tiny_pair
from tests import oracle
from tests.draft_file import ARRAY, BOOL, F32, HIDDEN, I32, STRING, U32, DraftFile


def meaning(file: DraftFile, path: Path) -> Draft:
    with open_gguf(file.write(path)) as gguf:
        reading = read_draft(gguf)
    assert reading.draft is not None, reading.findings
    return reading.draft


def test_every_field(tmp_path: Path) -> None:
    assert meaning(DraftFile(), tmp_path / "x.gguf") == Draft(
        kind="dspark",
        backbone="qwen3",
        block_size=7,
        sample_from_anchor=True,
        target_layers=(1, 3, 5),
        mask_token_id=77,
        markov_rank=32,
        markov_head_type="vanilla",
        has_confidence_head=True,
        vocab_size=80,
        draft_vocab_size=80,
        hidden_size=64,
        intermediate_size=96,
        n_layer=2,
        n_head=4,
        n_head_kv=2,
        head_dim=16,
        context_length=4096,
        rms_norm_eps=pytest.approx(1e-6),  # type: ignore[arg-type]
        rope=Rope("neox", 16, 1e6),
    )


def test_optional_fields(tmp_path: Path) -> None:
    file = DraftFile()
    file.kv |= {
        "dflash.attention.causal": (BOOL, True, None),
        "dflash.attention.sliding_window": (U32, 128, None),
        "dflash.attention.sliding_window_pattern": (ARRAY, [True, False], BOOL),
        "dflash.rope.dimension_count": (U32, 8, None),
        "dflash.rope.scaling.type": (STRING, "yarn", None),
        "dflash.rope.scaling.factor": (F32, 4.0, None),
        "dflash.sample_from_anchor": (BOOL, False, None),
    }
    file.tensors["output.weight"] = ("F32", (HIDDEN, 40))
    file.tensors["d2t"] = ("I64", (40,))
    file.tensors["markov_w2.weight"] = ("Q8_0", (32, 40))
    draft = meaning(file, tmp_path / "x.gguf")
    assert (draft.causal, draft.sliding_window, draft.sliding_window_pattern) == (True, 128, (True, False))
    assert draft.rope == Rope("neox", 8, 1e6, {"type": "yarn", "factor": 4.0})
    assert (draft.vocab_size, draft.draft_vocab_size) == (80, 40)
    assert (draft.has_token_embd, draft.has_output) == (False, True)
    assert (draft.sample_from_anchor, draft.drafts_per_block) == (False, 6)


def test_what_is_missing_means_what_llama_cpp_takes_it_to_mean(tmp_path: Path) -> None:
    file = DraftFile()
    for key in (
        "dflash.sample_from_anchor",
        "dflash.has_confidence_head",
        "dflash.attention.head_count_kv",
        "dflash.attention.key_length",
        "dflash.rope.freq_base",
        "dspark.backbone",
        "dspark.rope_style",
        "dspark.markov_head_type",
    ):
        del file.kv[key]
    draft = meaning(file, tmp_path / "x.gguf")
    assert draft.sample_from_anchor is True
    assert draft.has_confidence_head is True
    assert (draft.n_head_kv, draft.head_dim, draft.rope.freq_base) == (4, 16, 10_000)
    assert (draft.backbone, draft.rope.style, draft.markov_head_type) == ("unknown", "neox", "vanilla")


def test_sizes_given_per_layer(tmp_path: Path) -> None:
    file = DraftFile()
    file.kv["dflash.attention.head_count"] = (ARRAY, [4, 4], I32)
    assert meaning(file, tmp_path / "x.gguf").n_head == 4


def test_a_plain_dflash_draft(tmp_path: Path) -> None:
    file = DraftFile()
    for name in ("markov_w1.weight", "markov_w2.weight", "conf_proj.weight", "conf_proj.bias"):
        del file.tensors[name]
    for key in ("sample_from_anchor", "has_confidence_head"):
        del file.kv[f"dflash.{key}"]
    for key in ("markov_rank", "markov_head_type"):
        del file.kv[f"dspark.{key}"]
    draft = meaning(file, tmp_path / "x.gguf")
    assert (draft.kind, draft.drafts_per_block, draft.markov_rank, draft.vocab_size) == ("dflash", 6, 0, 80)
    assert (draft.markov_head_type, draft.has_confidence_head) == ("none", False)


@pytest.mark.parametrize(
    ("kv", "message"),
    [
        ({"general.architecture": (STRING, "qwen3", None)}, r"complete qwen3 model \(Tiny draft\), no DSpark draft"),
        (
            {"general.architecture": (STRING, "llama", None), "general.type": (STRING, "adapter", None)},
            "general.type is adapter",
        ),
        ({"general.architecture": (U32, 1, None)}, "has no general.architecture"),
    ],
)
def test_what_is_no_draft_is_named(tmp_path: Path, kv: dict[str, tuple[int, object, None]], message: str) -> None:
    file = DraftFile()
    file.kv |= kv
    with open_gguf(file.write(tmp_path / "x.gguf")) as gguf, pytest.raises(InputError, match=message):
        read_draft(gguf)


@pytest.mark.parametrize("dialect", ["dflash", "dspark"])
@pytest.mark.parametrize("outtype", ["f32", "f16", "bf16", "q8_0"])
def test_what_the_oracle_writes_is_read_and_found_good(tmp_path: Path, outtype: str, dialect: str) -> None:
    pair = make_tiny_pair(tmp_path, markov_rank=16)
    write_target_gguf(pair.target_dir, tmp_path / "target.gguf")
    path = tmp_path / "dspark-tiny.gguf"
    oracle.write(
        oracle.expected(pair.draft_dir, pair.target_dir, outtype, dialect=dialect), path, tmp_path / "target.gguf"
    )
    config = json.loads((pair.draft_dir / "config.json").read_text())
    with open_gguf(path) as gguf:
        reading = read_draft(gguf)
        found = lint(gguf, reading, deep=True)
    assert reading.dialect == dialect
    assert {finding.rule for finding in found} == ({"early-layout"} if dialect == "dspark" else set())
    draft = reading.draft
    assert draft is not None
    assert draft.target_layers == tuple(i + 1 for i in config["target_layer_ids"])
    for attribute, key in {
        "block_size": "block_size",
        "mask_token_id": "mask_token_id",
        "markov_rank": "markov_rank",
        "hidden_size": "hidden_size",
        "intermediate_size": "intermediate_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_head_kv": "num_key_value_heads",
        "head_dim": "head_dim",
        "vocab_size": "vocab_size",
        "draft_vocab_size": "vocab_size",
        "context_length": "max_position_embeddings",
    }.items():
        assert getattr(draft, attribute) == config[key], attribute
    assert (draft.kind, draft.sample_from_anchor, draft.has_confidence_head) == ("dspark", True, True)
    assert draft.rope == Rope("neox", config["head_dim"], config["rope_parameters"]["rope_theta"])


def test_the_target_itself_is_named(tmp_path: Path) -> None:
    pair = make_tiny_pair(tmp_path)
    write_target_gguf(pair.target_dir, tmp_path / "target.gguf")
    with open_gguf(tmp_path / "target.gguf") as gguf, pytest.raises(InputError, match="complete qwen3 model"):
        read_draft(gguf)
