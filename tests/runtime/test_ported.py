"""A ported file runs, and computes what its checkpoint computes at every position."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.convert import Request, prepare, write
from dspark_convert.options import Options, Outtype
from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.validation import validate
from tests import oracle, stage_oracle
from tests.checkpoints import Pair
from tests.conftest import Convert
from tests.old_files import bare, ds4, early, fork, ik, prism, write_plain
from tests.runtime.pairs import PairFiles
from tests.runtime.stage_pairs import StagePair, make_stage_pair

LAYOUTS = {"early": early, "fork": fork, "prism": prism, "ik": ik}


@pytest.fixture(scope="module")
def stage_pair(tmp_path_factory: pytest.TempPathFactory) -> StagePair:
    return make_stage_pair(tmp_path_factory.mktemp("stages"))


def ported(old: Path, target: Path, outtype: Outtype = "auto") -> Path:
    request = Request(old, None, target, old.with_name("dspark-ported.gguf"), Options(outtype=outtype), force=True)
    return write(prepare(request), request).path


def not_passed(report: ValidationReport) -> dict[str, str]:
    assert {"load", "features", "parity", "confidence"} <= {check.name for check in report.checks}
    return {check.name: check.detail for check in report.checks if check.status != "pass"}


@pytest.mark.parametrize("case", LAYOUTS)
def test_every_layout_runs_as_its_checkpoint(random_pair: PairFiles, tmp_path: Path, case: str) -> None:
    want = oracle.expected(random_pair.draft_dir, random_pair.target_dir, "f32")
    draft = ported(write_plain(LAYOUTS[case](want), tmp_path / "old.gguf"), random_pair.target)
    report = validate(draft, random_pair.target, reference=random_pair.draft_dir, prompts=["the small boat"])
    assert not_passed(report).keys() == {"acceptance"}  # a random draft is no use


def test_norms_in_bf16(pair: Pair, tmp_path: Path) -> None:
    draft = ported(
        write_plain(bare(oracle.expected(pair.draft, pair.target, "bf16")), tmp_path / "old.gguf"), pair.gguf
    )
    report = validate(draft, pair.gguf, reference=pair.draft, prompts=["the small boat"])
    assert not_passed(report).keys() == {"acceptance"}


def test_ds4_stages_run_as_their_checkpoint(stage_pair: StagePair, tmp_path: Path) -> None:
    old = write_plain(ds4(stage_oracle.expected(stage_pair.directory)), tmp_path / "old.gguf")
    draft = ported(old, stage_pair.target)
    assert oracle.read(draft).tensors == oracle.read(stage_pair.draft).tensors
    report = validate(draft, stage_pair.target, reference=stage_pair.directory, prompts=["the small boat"])
    assert not_passed(report).keys() == {"acceptance"}


def test_taps_shifted_twice_are_seen(random_pair: PairFiles, tmp_path: Path) -> None:
    want = oracle.expected(random_pair.draft_dir, random_pair.target_dir, "f32")
    kind, taps = want.kv["dflash.target_layers"]
    wrong = oracle.Expected(want.kv | {"dflash.target_layers": (kind, [tap - 1 for tap in taps])}, want.tensors)
    draft = ported(write_plain(ik(wrong), tmp_path / "old.gguf"), random_pair.target)
    report = validate(draft, random_pair.target, reference=random_pair.draft_dir, prompts=["the small boat"])
    assert "metadata" in not_passed(report)


def test_verify_runs_the_ported_file(pair: Pair, convert: Convert, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("boat\n")
    old = write_plain(prism(oracle.expected(pair.draft, pair.target, "bf16")), tmp_path / "old.gguf")
    args = ("--target-gguf", pair.gguf, "--verify", "--prompts", tmp_path / "prompts.txt", "-o", "out.gguf", "--json")
    ended = convert(old, *args)
    assert ended.code == 1  # a random draft is no use
    checks = {check["name"]: check["status"] for check in ended.document["validation"]["checks"]}
    assert {name for name, status in checks.items() if status != "pass"} == {"acceptance"}
    assert "made from a GGUF" in ended.err
