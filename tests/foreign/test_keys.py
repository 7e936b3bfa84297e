"""Drafts in other layouts' words: against files written from their documentation, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.draft import Draft, Rope
from dspark_convert.foreign.jobs import jobs_in_dialect
from dspark_convert.foreign.keys import in_dialect, judge_dialect
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.layouts import dialect_name, layouts
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.ggufio.types import KV, GGMLType, ValueType, u32
from dspark_convert.jobs import TensorJob
from dspark_convert.metadata import runtime
from tests.draft_file import F32, DraftFile
from tests.foreign.keys_for import keys_for
from tests.ggufio.layout_files import (
    ds4,
    ds4_target,
    early,
    ik,
    ik_dflash,
    plain,
    plain_dflash,
    plain_stages,
    prism,
)

#: dialect, the file from its documentation, the same draft in mainline's layout
WRITTEN: list[tuple[str, Callable[[], DraftFile], Callable[[], DraftFile]]] = [
    ("dflash", plain, plain),
    ("dflash", plain_dflash, plain_dflash),
    ("dflash", plain_stages, plain_stages),
    ("dspark", early, plain),
    ("dspark-prism", prism, lambda: plain(tables=True)),
    ("dflash-draft", ik, lambda: plain(sinks=True)),
    ("dflash-draft", ik_dflash, plain_dflash),
    ("ds4", ds4, plain_stages),
]


def meaning(file: DraftFile, path: Path, target: Path | None = None) -> Draft:
    with open_gguf(file.write(path)) as gguf:
        if target is None:
            draft = read_draft(gguf).draft
        else:
            with open_gguf(target) as theirs:
                draft = read_draft(gguf, theirs).draft
    assert draft is not None
    return draft


def entry(kv: KV) -> tuple[int, object, int | None]:
    return (int(kv.type), kv.value, None if kv.item_type is None else int(kv.item_type))


@pytest.mark.parametrize(("dialect", "build", "mainline"), WRITTEN)
def test_keys_are_those_of_the_documented_file(
    tmp_path: Path, dialect: str, build: Callable[[], DraftFile], mainline: Callable[[], DraftFile]
) -> None:
    draft = meaning(mainline(), tmp_path / "mainline.gguf")
    written = {kv.key: entry(kv) for kv in keys_for(dialect, draft)}
    documented = {
        key: value
        for key, value in build().kv.items()
        if not key.startswith(("tokenizer.", "general.name", "general.f"))
    }
    told = {key: value for key, value in written.items() if not key.startswith("tokenizer.")}
    # A width that is the default needs no key; flags of plain DFlash drafts and a list of zeros change nothing.
    optional = {f"{layout}.rope.dimension_count" for layout in ("dflash", "dflash-draft")} | {
        "dflash.hash_layer_count",
        "dflash.sample_from_anchor",
        "dflash.has_confidence_head",
        "dspark.sample_from_anchor",
        "dspark.has_confidence_head",
    }
    assert told.keys() ^ documented.keys() <= optional
    for key in told.keys() & documented.keys():
        kind, value, item = told[key]
        assert (kind, item) == (documented[key][0], documented[key][2]), key
        assert value == (pytest.approx(documented[key][1]) if kind == F32 else documented[key][1]), key


@pytest.mark.parametrize(("dialect", "build", "mainline"), WRITTEN)
def test_what_is_written_is_read_to_the_same_draft(
    tmp_path: Path, dialect: str, build: Callable[[], DraftFile], mainline: Callable[[], DraftFile]
) -> None:
    target = ds4_target(tmp_path / "target.gguf")
    draft = meaning(mainline(), tmp_path / "mainline.gguf")
    file = mainline()
    tensors = {dialect_name(dialect, name, draft.n_layer): tensor for name, tensor in file.tensors.items()}
    assert None not in tensors
    file.tensors = {name: tensor for name, tensor in tensors.items() if name is not None}
    assert file.tensors.keys() == build().tensors.keys()
    vocabulary = {key: value for key, value in file.kv.items() if key.startswith("tokenizer.")}
    file.kv = {kv.key: entry(kv) for kv in keys_for(dialect, draft)}
    file.kv |= {key: value for key, value in vocabulary.items() if key != "tokenizer.ggml.mask_token_id"}
    assert meaning(file, tmp_path / "x.gguf", target) == draft


def test_the_early_layout_is_mainlines_under_another_name(tmp_path: Path) -> None:
    draft = meaning(plain(), tmp_path / "mainline.gguf")
    kvs = runtime(draft, mrope=True)
    found = {kv.key: kv for kv in in_dialect("dspark", draft, kvs)}
    renamed = [replace(kv, key=kv.key.replace("dflash.", "dspark.")) for kv in kvs]
    assert found == {kv.key: kv for kv in [*renamed, u32("dspark.markov_rank", draft.markov_rank)]}


def test_attention_and_rotation_beyond_what_is_converted(tmp_path: Path) -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 2048}
    draft = replace(
        meaning(plain(), tmp_path / "mainline.gguf"),
        causal=True,
        sliding_window=64,
        sliding_window_pattern=(True, False),
        rope=Rope("neox", 8, 1e6, scaling),
    )
    file = plain()
    file.kv = {kv.key: entry(kv) for kv in keys_for("dflash", draft)}
    assert meaning(file, tmp_path / "x.gguf") == draft


def test_our_own_keys_and_the_vocabulary_follow_the_layout(tmp_path: Path) -> None:
    draft = meaning(plain_stages(), tmp_path / "mainline.gguf")
    kvs = [
        KV("dspark.source", ValueType.STRING, "a/b"),
        KV("tokenizer.ggml.model", ValueType.STRING, "gpt2"),
        KV("general.name", ValueType.STRING, "x"),
    ]
    kept = [kv.key for kv in in_dialect("ds4", draft, kvs)]
    assert kept[:2] == ["dspark.source", "general.name"]
    assert "tokenizer.ggml.model" not in kept


#: dialect, what is changed in a draft that it can hold, the place that is named
REFUSED = [
    ("dspark", {"markov_rank": 0}, "markov_rank"),
    ("dspark", {"has_token_embd": True}, "token_embd.weight"),
    ("dspark", {"kind": "dflash2"}, "kind"),
    ("dspark-prism", {"draft_vocab_size": 40}, "d2t"),
    ("dspark-prism", {"has_sinks": True}, "blk.0.attn_sinks.weight"),
    ("dspark-prism", {"sample_from_anchor": False}, "sample_from_anchor"),
    ("dspark-prism", {"has_token_embd": False}, "shared_tensors"),
    ("dflash-draft", {"causal": True}, "causal"),
    ("dflash-draft", {"target_layers": tuple(range(1, 10))}, "target_layers"),
    ("dflash-draft", {"target_layers": (0, 1)}, "target_layers"),
    ("dspark-prism", {"sliding_window": 64, "sliding_window_pattern": (True, True)}, "sliding_window"),
    ("dspark", {"value_scale": 0.6}, "value_scale"),
    ("dspark", {"shared_kv": True}, "backbone"),
    ("dspark", {"rope": Rope("neox", 16, 1e6, {"type": "proportional", "rotated": 4})}, "backbone"),
    ("dflash-draft", {"hidden_act": "gelu"}, "backbone"),
    ("dflash-draft", {"embedding_scale": 8.0}, "embedding_scale"),
    ("dflash-draft", {"logit_softcap": 30.0}, "logit_softcap"),
    ("ds4", {"has_confidence_head": False}, "has_confidence_head"),
    ("ds4", {"has_output": True}, "output.weight"),
    ("ds4", {"deepseek4": None}, "backbone"),
]


def test_a_layout_without_the_key_cannot_say_bonus_anchor(tmp_path: Path) -> None:
    mainline = next(mainline for name, _, mainline in WRITTEN if name == "dspark-prism")
    draft = meaning(mainline(), tmp_path / "mainline.gguf")
    (finding,) = judge_dialect("dspark-prism", replace(draft, sample_from_anchor=False))
    assert finding.message.endswith("is not written: it cannot say that the draft is bonus-anchor.")


@pytest.mark.parametrize(("dialect", "change", "where"), REFUSED)
def test_what_a_layout_cannot_hold_is_refused(tmp_path: Path, dialect: str, change: dict[str, Any], where: str) -> None:
    mainline = next(mainline for name, _, mainline in WRITTEN if name == dialect)
    draft = meaning(mainline(), tmp_path / "mainline.gguf")
    assert judge_dialect(dialect, draft) == []
    found = judge_dialect(dialect, replace(draft, **change))
    assert [(finding.rule, finding.severity, finding.where) for finding in found] == [("dialect", "error", where)]


@pytest.mark.parametrize(
    ("dialect", "change"),
    [
        ("dflash-draft", {"sliding_window": 64, "sliding_window_pattern": (True, False)}),
        ("dflash-draft", {"value_scale": 0.612, "rope": Rope("neox", 8, 1e6)}),
        ("dspark", {"rope": Rope("neox", 16, 1e6, {"type": "yarn", "factor": 4.0})}),
    ],
)
def test_what_its_engine_computes_is_written(tmp_path: Path, dialect: str, change: dict[str, Any]) -> None:
    mainline = next(mainline for name, _, mainline in WRITTEN if name == dialect)
    plain_draft = meaning(mainline(), tmp_path / "mainline.gguf")
    draft = replace(plain_draft, **change)
    assert judge_dialect(dialect, draft) == []
    more = {kv.key for kv in keys_for(dialect, draft)} - {kv.key for kv in keys_for(dialect, plain_draft)}
    expected = {kv.key for kv in runtime(draft, mrope=False)} - {kv.key for kv in runtime(plain_draft, mrope=False)}
    assert more == {key.replace("dflash.", f"{dialect}.", 1) for key in expected}


def test_scales_beside_matrices_have_no_place() -> None:
    for dialect in ("dspark", "dflash-draft", "dspark-prism"):
        assert dialect_name(dialect, "blk.0.attn_q.scale", 2) is None


def test_tables_that_can_be_left_out_are_advised_to_be(tmp_path: Path) -> None:
    """Where they were asked for, and are no head of a reduced vocabulary."""
    draft = replace(meaning(plain(), tmp_path / "mainline.gguf"), has_output=True)
    reduced = replace(draft, draft_vocab_size=draft.vocab_size - 1)
    other = "use --dialect dflash"
    for given, included, fix in (
        (draft, True, f"use --shared-tensors omit or {other.removeprefix('use ')}"),
        (draft, False, other),
        (reduced, True, other),
    ):
        found = {finding.where: finding.fix for finding in judge_dialect("dspark", given, included=included)}
        assert found["output.weight"] == fix


def test_stages_are_refused_where_there_are_none(tmp_path: Path) -> None:
    draft = meaning(plain_stages(), tmp_path / "mainline.gguf")
    assert judge_dialect("dspark", draft)[0].where == "backbone"


def test_layouts_that_are_never_written_say_why(tmp_path: Path) -> None:
    draft = meaning(plain(), tmp_path / "mainline.gguf")
    written = {dialect for dialect, _, _ in WRITTEN}
    for layout in layouts():
        if layout.name not in written:
            (finding,) = judge_dialect(layout.name, draft)
            assert finding.where == "layout"


def test_ds4_gets_the_types_that_it_takes(tmp_path: Path) -> None:
    """Its loader's lists: matrices F32, F16 or Q8_0, experts of some quants, mixing F32 or F16."""
    draft = meaning(plain_stages(), tmp_path / "mainline.gguf")
    jobs = [
        TensorJob("blk.0.ffn_gate_inp.weight", GGMLType.BF16, (64, 4), ()),
        TensorJob("markov_w1.weight", GGMLType.Q5_0, (32, 96), ()),
        TensorJob("conf_proj.weight", GGMLType.BF16, (96, 1), ()),
        TensorJob("blk.0.attn_kv.weight", GGMLType.Q8_0, (64, 32), ()),
        TensorJob("blk.2.ffn_up_exps.weight", GGMLType.MXFP4, (64, 32, 4), ()),
    ]
    made, found = jobs_in_dialect("ds4", draft, jobs)
    assert [(job.name, job.type.name) for job in made] == [
        ("mtp.0.ffn_gate_inp.weight", "F32"),
        ("mtp.2.markov_head.markov_w1.weight", "Q8_0"),
        ("mtp.2.confidence_head.proj.weight", "F32"),
        ("mtp.0.attn_kv.weight", "Q8_0"),
        ("mtp.2.ffn_up_exps.weight", "MXFP4"),
    ]
    assert [(finding.rule, finding.severity) for finding in found] == [("layout-types", "info")]


@pytest.mark.parametrize("kind", [GGMLType.BF16, GGMLType.Q5_K, GGMLType.NVFP4])
def test_experts_of_types_that_ds4_has_not_are_refused(tmp_path: Path, kind: GGMLType) -> None:
    draft = meaning(plain_stages(), tmp_path / "mainline.gguf")
    jobs = [TensorJob("blk.1.ffn_down_exps.weight", kind, (256, 64, 4), ())]
    _, found = jobs_in_dialect("ds4", draft, jobs)
    assert [(f.rule, f.severity, f.where) for f in found] == [("layout-types", "error", "blk.1.ffn_down_exps.weight")]
    assert jobs_in_dialect("dflash", draft, jobs) == (jobs, [])
