"""Files of each family: a good one has no finding, and each rule finds what it is for in a broken one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.draft_file import HIDDEN, U32
from tests.family_file import FAMILIES, GROUP, KERNEL
from tests.lint.breaking import Change, put, shape
from tests.lint.family_cases import FAMILY_CASES
from tests.lint.test_rules import findings

#: what there is to tell of the good files
TOLD = {
    "speculators-dflash": {("own-tables", "info"), ("causal-mixed", "warning")},
    "nemotron": {("no-confidence-head", "info")},
    "mimo": {("own-tables", "info")},
}


def named(family: str) -> str:
    return "dspark-x.gguf" if family not in ("dflash", "speculators-dflash", "mimo", "dflash2") else "dflash-x.gguf"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_good_file_has_no_fault(tmp_path: Path, family: str) -> None:
    found = findings(FAMILIES[family](), tmp_path / named(family))
    assert {(finding.rule, finding.severity) for finding in found} == TOLD.get(family, set()), found


@pytest.mark.parametrize(("family", "rule", "severity", "change"), FAMILY_CASES)
def test_exactly_that_rule_fires(tmp_path: Path, family: str, rule: str, severity: str, change: Change) -> None:
    file = FAMILIES[family]()
    change(file)
    found = {(f.rule, f.severity) for f in findings(file, tmp_path / named(family))} - TOLD.get(family, set())
    assert found == {(rule, severity)}


def test_dflash2s_channels_have_to_be_parted_evenly(tmp_path: Path) -> None:
    file = FAMILIES["dflash2"]()
    put(dflash__conv_group_size=(U32, 24))(file)
    for layer in range(2):
        for half in ("attn", "ffn"):
            shape(f"blk.{layer}.{half}_conv_proj.weight", None, (HIDDEN, 2 * KERNEL * (HIDDEN // 24)))(file)
    (finding,) = findings(file, tmp_path / "dflash-x.gguf")
    assert (finding.rule, finding.where) == ("selector-sizes", "conv_group_size")
    assert HIDDEN % GROUP == 0


@pytest.mark.parametrize("name", ["conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"])
def test_no_size_of_dflash2_is_zero(tmp_path: Path, name: str) -> None:
    file = FAMILIES["dflash2"]()
    put(**{f"dflash__{name}": (U32, 0)})(file)
    assert ("selector-sizes", name) in {(f.rule, f.where) for f in findings(file, tmp_path / "dflash-x.gguf")}


def test_more_candidates_than_tokens(tmp_path: Path) -> None:
    """llama.cpp's top_k asserts that there are as many."""
    file = FAMILIES["dflash2"]()
    for name in ("predecessor", "successor"):
        shape(f"selector_{name}.weight", None, (8, 80))(file)
    put(dflash__selector_top_k=(U32, 7))(file)
    shape("d2t", "I64", (5,))(file)
    shape("output.weight", "F32", (HIDDEN, 5))(file)
    found = findings(file, tmp_path / "dflash-x.gguf")
    assert [(f.rule, f.where) for f in found] == [("selector-sizes", "selector_top_k")]
