"""Scales of a target's embeddings and logits against those that the draft says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.pair.fit import compare, judge_file
from dspark_convert.pair.scales import judge_scales, logits_of
from dspark_convert.source.provenance import Provenance
from dspark_convert.target import Target, open_target_gguf
from tests.draft_file import F32, HIDDEN, STRING, U32
from tests.family_file import FAMILIES
from tests.target_file import TargetFile

TARGET = Target(Path("t.gguf"), True, "museglimmer", Provenance("t"), HIDDEN, 6, 80, tied=False, mrope=False)


def read(family: str, path: Path) -> Any:
    with open_gguf(FAMILIES[family]().write(path)) as gguf:
        return read_draft(gguf).draft


@pytest.mark.parametrize(
    ("family", "target", "rules"),
    [
        ("dspark", {}, []),
        ("dspark", {"embedding_scale": 1.0, "logit_scale": 1.0}, []),
        ("dspark", {"embedding_scale": 8.0}, ["target-embedding-scale"]),
        ("dspark", {"logit_softcap": 30.0}, ["target-logits"]),
        ("dspark", {"logit_scale": 0.25}, ["target-logits"]),
        ("dflash", {"logit_scale": 0.25, "logit_softcap": 20.0}, []),  # the order of the tokens is the same
        ("dflash", {"embedding_scale": 8.0}, ["target-embedding-scale"]),
        ("gemma4", {"embedding_scale": 8.0}, []),
        ("gemma4", {}, ["target-embedding-scale"]),
        ("mimo", {"embedding_scale": 8.0}, []),  # its own table
        ("dflash2", {"embedding_scale": 2.0, "logit_scale": 0.25, "logit_softcap": 20.0}, []),
    ],
)
def test_what_a_borrowed_table_leaves_behind(
    tmp_path: Path, family: str, target: dict[str, float], rules: list[str]
) -> None:
    found = judge_scales(read(family, tmp_path / "x.gguf"), replace(TARGET, **target))  # type: ignore[arg-type]
    assert [finding.rule for finding in found] == rules


def test_a_selector_needs_them_too(tmp_path: Path) -> None:
    draft = replace(read("dflash2", tmp_path / "x.gguf"), logit_scale=None, logit_softcap=None, embedding_scale=None)
    (finding,) = judge_scales(draft, replace(TARGET, logit_softcap=20.0))
    assert "selector" in finding.message
    assert "capped at 20" in finding.message


def test_in_words() -> None:
    assert logits_of(TARGET) == logits_of(replace(TARGET, logit_scale=1.0)) == ""
    assert logits_of(replace(TARGET, logit_scale=0.25, logit_softcap=20.0)) == "times 0.25, capped at 20"


def test_a_gemma_target_and_its_drafts(tmp_path: Path) -> None:
    """Its table is small and its graph multiplies; of its own kind of draft the keys say so."""
    file = TargetFile()
    file.kv = {key.replace("qwen3.", "gemma4."): value for key, value in file.kv.items()}
    file.kv["general.architecture"] = (STRING, "gemma4", None)
    file.kv["gemma4.final_logit_softcapping"] = (F32, 30.0, None)
    target = open_target_gguf(file.write(tmp_path / "target.gguf"))
    assert (target.embedding_scale, target.logit_softcap, target.logit_scale) == (8.0, 30.0, None)
    found = {}
    for family in ("dflash", "gemma4"):
        with open_gguf(FAMILIES[family]().write(tmp_path / f"{family}.gguf")) as gguf:
            draft = read_draft(gguf).draft
            assert draft is not None
            findings = judge_file(draft, gguf.metadata, target, None)
            fit = compare(draft, gguf.metadata, target, findings, None, None)
        found[family] = {field.name: (field.draft, field.target, field.mark) for field in fit.fields}
    assert found["dflash"]["embeddings times"] == ("1", "8", "remark")
    assert found["dflash"]["logits"] == ("as they are", "capped at 30", "ok")
    assert found["gemma4"]["embeddings times"] == ("8", "8", "ok")
    assert found["gemma4"]["logits"] == ("as they are", "capped at 30", "remark")
    assert found["gemma4"]["RoPE scaling"] == ("none", "none", "ok")


def test_scales_of_a_target_that_states_them(tmp_path: Path) -> None:
    file = TargetFile()
    file.kv["qwen3.embedding_scale"] = (F32, 12.0, None)
    file.kv["qwen3.logit_scale"] = (U32, 2, None)
    target = open_target_gguf(file.write(tmp_path / "target.gguf"))
    assert (target.embedding_scale, target.logit_scale, target.logit_softcap) == (12.0, 2.0, None)
