"""The meaning of a file of each published family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dspark_convert.draft import DFlash2, Draft, Rope
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from tests.draft_file import ARRAY, F32, HEAD_DIM, HIDDEN, I32, STRING, U32, VOCAB, DraftFile
from tests.family_file import FAMILIES, REDUCED, ROTATED, WINDOW, gemma4, kimi, put

WINDOWED = {"sliding_window": WINDOW, "sliding_window_pattern": (True, True)}
HEADLESS = {"kind": "dflash", "sample_from_anchor": False, "markov_rank": 0, "markov_head_type": "none"}

#: what differs from the plain DSpark draft
MEANINGS: dict[str, dict[str, Any]] = {
    "dspark": {},
    "dflash": {**HEADLESS, "has_confidence_head": False},
    "speculators-dflash": {
        **HEADLESS,
        "has_confidence_head": False,
        "sliding_window": WINDOW,
        "sliding_window_pattern": (True, False),
        "causal_pattern": (True, False),
        "draft_vocab_size": REDUCED,
        "has_token_embd": True,
        "has_output": True,
    },
    "speculators-dspark": {
        **WINDOWED,
        "causal": True,
        "sample_from_anchor": False,
        "draft_vocab_size": REDUCED,
        "has_output": True,
    },
    "nemotron": {
        **WINDOWED,
        "causal": True,
        "sample_from_anchor": False,
        "has_confidence_head": False,
        "has_sinks": True,
    },
    "mimo": {
        **HEADLESS,
        **WINDOWED,
        "has_confidence_head": False,
        "has_sinks": True,
        "value_scale": pytest.approx(0.612),
        "rope": Rope("neox", HEAD_DIM // 2, 1e6),
        "has_mask_row": True,
        "has_token_embd": True,
        "has_output": True,
    },
    "kimi": {
        "rope": Rope(
            "neox",
            HEAD_DIM,
            1e6,
            {"type": "yarn", "factor": 16.0, "original_context_length": 256, "attention_factor": 1.5},
        )
    },
    "dflash2": {
        **HEADLESS,
        **WINDOWED,
        "kind": "dflash2",
        "has_confidence_head": False,
        "dflash2": DFlash2(3, 16, 8, 7),
        "embedding_scale": 2.0,
        "logit_scale": 0.25,
        "logit_softcap": 20.0,
    },
    "gemma4": {
        "backbone": "gemma4",
        "shared_kv": True,
        "hidden_act": "gelu",
        "attention_scale": 1.0,
        "embedding_scale": 8.0,
        "rope": Rope("neox", HEAD_DIM, 1e6, {"type": "proportional", "rotated": ROTATED}),
    },
}


def meaning(file: DraftFile, path: Path) -> Draft:
    with open_gguf(file.write(path)) as gguf:
        reading = read_draft(gguf)
    assert reading.draft is not None, reading.findings
    return reading.draft


def fields(draft: Draft) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in Draft.__dataclass_fields__ if name != "origin"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_means_what_its_family_is(tmp_path: Path, family: str) -> None:
    plain = fields(meaning(DraftFile(), tmp_path / "plain.gguf"))
    assert fields(meaning(FAMILIES[family](), tmp_path / "x.gguf")) == plain | MEANINGS[family]


def test_a_mask_row_stands_in_the_embeddings(tmp_path: Path) -> None:
    file = FAMILIES["mimo"]()
    for name in ("token_embd.weight", "output.weight"):
        del file.tensors[name]
    with open_gguf(file.write(tmp_path / "x.gguf")) as gguf:
        found = [(each.rule, each.where) for each in read_draft(gguf).findings if each.severity == "error"]
    assert found == [("meaning-disagrees", "dspark.mask_row")]


def test_gemma4_is_known_without_our_keys(tmp_path: Path) -> None:
    file = gemma4()
    for key in ("dspark.backbone", "dspark.rope_rotated"):
        del file.kv[key]
    draft = meaning(file, tmp_path / "x.gguf")
    assert (draft.backbone, draft.rope.scaling) == ("gemma4", {"type": "proportional", "rotated": ROTATED})


def test_without_the_frequencies_values_the_file_says_how_many_turn(tmp_path: Path) -> None:
    path = gemma4().write(tmp_path / "x.gguf")
    with open_gguf(path) as gguf:
        first = min(tensor.offset for tensor in gguf.tensors)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:first])
    with open_gguf(path, {str(path): whole}) as gguf:
        draft = read_draft(gguf).draft
    assert draft is not None
    assert draft.rope.scaling == {"type": "proportional", "rotated": ROTATED}


@pytest.mark.parametrize(
    ("kv", "scaling"),
    [
        ({"rope__scaling__type": (STRING, "none"), "rope__scaling__factor": (F32, 4.0)}, None),
        ({"rope__scaling__factor": (F32, 4.0)}, {"type": "linear", "factor": 4.0}),
        ({"rope__scale_linear": (F32, 4.0)}, {"type": "linear", "factor": 4.0}),
        ({"rope__scaling__factor": (F32, 1.0)}, None),
        (
            {"rope__scaling__type": (STRING, "yarn"), "rope__scaling__factor": (F32, 16.0)},
            {"type": "yarn", "factor": 16.0},
        ),
        (
            {
                "rope__scaling__type": (STRING, "yarn"),
                "rope__scaling__factor": (F32, 16.0),
                "rope__scaling__attn_factor": (F32, 2.0),
                "rope__scaling__yarn_beta_fast": (F32, 16.0),
                "rope__scaling__yarn_beta_slow": (F32, 2.0),
            },
            {
                "type": "yarn",
                "factor": 16.0,
                "attention_factor": pytest.approx(2 * 1.2772588722239782),
                "beta_fast": 16.0,
                "beta_slow": 2.0,
            },
        ),
    ],
)
def test_scaling_is_what_llama_cpp_takes_it_for(tmp_path: Path, kv: dict[str, Any], scaling: object) -> None:
    file = DraftFile()
    put(file, **kv)
    assert meaning(file, tmp_path / "x.gguf").rope.scaling == scaling


def test_a_key_that_llama_cpp_leaves_unread_may_have_any_type(tmp_path: Path) -> None:
    file = kimi()
    put(file, rope__scaling__yarn_beta_fast=(12, 16.0), rope__scaling__yarn_beta_slow=(STRING, "1"))
    with open_gguf(file.write(tmp_path / "x.gguf")) as gguf:
        reading = read_draft(gguf)
    assert reading.draft is not None
    assert reading.draft.rope.scaling is not None
    assert reading.draft.rope.scaling["beta_fast"] == 16.0
    assert "beta_slow" not in reading.draft.rope.scaling
    assert reading.findings == ()


def test_a_pattern_of_numbers_and_scales_of_zero(tmp_path: Path) -> None:
    file = DraftFile()
    put(
        file,
        attention__sliding_window=(U32, WINDOW),
        attention__sliding_window_pattern=(ARRAY, [0, 2], I32),
        attention__value_scale=(F32, 0.0),
        embedding_scale=(F32, 0.0),
        hidden_activation=(STRING, "silu"),
    )
    draft = meaning(file, tmp_path / "x.gguf")
    assert draft.sliding_window_pattern == (False, True)
    assert (draft.value_scale, draft.embedding_scale, draft.hidden_act) == (None, None, "silu")


def test_of_dflash2_every_size_is_needed(tmp_path: Path) -> None:
    file = FAMILIES["dflash2"]()
    del file.kv["dflash.selector_top_k"]
    with open_gguf(file.write(tmp_path / "x.gguf")) as gguf:
        reading = read_draft(gguf)
    assert reading.draft is None
    assert [(f.rule, f.where) for f in reading.findings] == [("key-missing", "dflash.selector_top_k")]


def test_dflash_without_tables_has_the_vocabulary_of_the_token_list(tmp_path: Path) -> None:
    draft = meaning(FAMILIES["dflash"](), tmp_path / "x.gguf")
    assert (draft.vocab_size, draft.draft_vocab_size, draft.drafts_per_block) == (VOCAB, VOCAB, 6)
    assert (draft.has_token_embd, draft.has_output, draft.hidden_size) == (False, False, HIDDEN)


def test_kimis_usual_length_is_not_told(tmp_path: Path) -> None:
    file = kimi()
    for name in ("attn_factor", "yarn_attn_factor"):
        del file.kv[f"dflash.rope.scaling.{name}"]
    scaling = meaning(file, tmp_path / "x.gguf").rope.scaling
    assert scaling == {"type": "yarn", "factor": 16.0, "original_context_length": 256}
