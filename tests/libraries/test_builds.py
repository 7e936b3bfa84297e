"""The runtime on every library that registries offer: what is right on one is right on all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.runtime.report import ValidationReport
from dspark_convert.runtime.validation import validate
from tests import oracle
from tests.libraries.builds import NOT_LOADING, TOO_OLD, Build, discard, unpack
from tests.libraries.conftest import PROMPTS, Unpacked, run
from tests.runtime.pairs import PairFiles

pytestmark = pytest.mark.registry


def test_runs_as_the_installed_one(unpacked: Unpacked, trained: PairFiles, installed: ValidationReport) -> None:
    """Same layouts and protocol as recorded, same text, same tokens proposed and accepted, also by its own server."""
    build = unpacked.build
    report = run(trained, trained.draft, unpacked.library, server=build.brings_server)
    assert report.passed, report.checks
    assert report.library["model_params"] + report.library["context_params"] == build.layouts
    assert report.library["injection"] == build.injection
    assert report.library["path"] == str(unpacked.library)
    assert report.lossless is True
    assert report.acceptance == installed.acceptance
    if build.brings_server:
        said = report.checks[-1].detail.removeprefix("xllamacpp's server accepted ").split("; ")[0]
        counted, expected = said.split(" drafts, this run ")
        assert counted == expected


def test_bonus_anchor_is_read_or_refused(
    unpacked: Unpacked, trained: PairFiles, bonus: Path, installed_bonus: ValidationReport
) -> None:
    """A library that runs it anchor-first accepts fewer tokens and would say nothing."""
    if not unpacked.build.reads_anchor:
        with pytest.raises(EnvironmentFault, match=r"does not read dflash\.sample_from_anchor, which is false"):
            run(trained, bonus, unpacked.library)
        return
    report = run(trained, bonus, unpacked.library)
    assert report.acceptance == installed_bonus.acceptance


def test_draft_with_tables_of_its_own(unpacked: Unpacked, trained: PairFiles, installed: ValidationReport) -> None:
    draft = trained.root / "own-tables.gguf"
    if not draft.exists():
        oracle.write(
            oracle.expected(trained.draft_dir, trained.target_dir, "f32", shared="include"), draft, trained.target
        )
    report = run(trained, draft, unpacked.library)
    if unpacked.build.own_tables:
        assert report.acceptance == installed.acceptance
    else:
        load = next(check for check in report.checks if check.name == "load")
        assert load.status == "fail"
        assert "wrong number of tensors; expected 42, got 40" in load.detail
        assert "--shared-tensors omit" in load.detail


@pytest.mark.parametrize("pair", ["trained", "one_tap"])
def test_computes_what_the_checkpoint_computes(unpacked: Unpacked, pair: str, request: pytest.FixtureRequest) -> None:
    """With one tap the two ways of taking features differ only in a norm."""
    files: PairFiles = request.getfixturevalue(pair)
    report = validate(
        files.draft,
        files.target,
        reference=files.draft_dir,
        lib=unpacked.library,
        prompts=PROMPTS[:1],
        max_tokens=16,
        timeout=120,
    )
    states = {check.name: check.status for check in report.checks}
    assert (states["parity"], states["confidence"]) == ("pass", "pass"), report.checks
    assert report.library["injection"] == unpacked.build.injection
    relative = [position["relative"] for position in report.to_json()["parity"]["positions"]]
    assert len(relative) == 7
    assert max(relative) < 1e-4


@pytest.mark.parametrize("build", NOT_LOADING, ids=lambda build: build.name)
def test_library_for_another_system_is_named(build: Build, cache: Path, trained: PairFiles, tmp_path: Path) -> None:
    library = unpack(build, cache, tmp_path)
    with pytest.raises(
        EnvironmentFault, match=rf"libllama\.so cannot be loaded .*GLIBC_{build.glibc[0]}\.\d+' not found"
    ):
        run(trained, trained.draft, library)


def test_library_from_before_dspark_is_named(cache: Path, trained: PairFiles, tmp_path: Path) -> None:
    """Its own words, "wrong number of tensors", would blame the file."""
    library = unpack(TOO_OLD, cache, tmp_path)
    with pytest.raises(EnvironmentFault, match=r"xllamacpp\.abi3\.so is too old for DSpark: it knows no Markov head"):
        run(trained, trained.draft, library)
    discard(tmp_path)
