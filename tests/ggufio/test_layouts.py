"""One draft in every layout: read to one meaning, named, and each difference told; and files that are not right."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.layouts import dialect_name, layout_named, layouts, mainline_name
from dspark_convert.ggufio.layouts.table import ORDER
from dspark_convert.ggufio.reader import open_gguf
from dspark_convert.lint import lint
from tests.draft_file import BOOL, F32, U32, DraftFile
from tests.gguf_bytes import ARRAY, STRING
from tests.ggufio.layout_files import FILES, ik, log_snr, plain, prism
from tests.ggufio.stage_layout_files import ds4, ds4_target, plain_stages
from tests.stage_file import FLASH, write_header

#: case -> what is told of the file beside the rules of every file
TOLD: dict[str, set[tuple[str, str]]] = {
    "mainline": set(),
    "early": {("early-layout", "warning")},
    "fork": {("legacy-layout", "error"), ("layout-names", "info"), ("own-tables", "info")},
    "prism": {
        ("legacy-layout", "error"),
        ("layout-names", "info"),
        ("layout-taps", "info"),
        ("layout-mask", "info"),
        ("vocabulary-missing", "error"),
        ("own-tables", "info"),
    },
    "ik": {("legacy-layout", "error"), ("layout-names", "info"), ("layout-taps", "info"), ("layout-mask", "info")},
    "bare": {("sinks-name", "error"), ("vector-type", "error"), ("vocabulary-missing", "error")},
    "ds4": {
        ("legacy-layout", "error"),
        ("layout-names", "info"),
        ("layout-taps", "info"),
        ("layout-mask", "info"),
        ("layout-sizes", "info"),
        ("vocabulary-missing", "error"),
    },
    "no-vocab": {("vocabulary-missing", "error")},
}
NOT_PORTABLE = ("not-portable", "error")
TOLD["ik-dflash"] = TOLD["ik"]
TOLD["prism-conditioned"] = TOLD["prism"] | {NOT_PORTABLE, ("tensor-unexpected", "error")}
TOLD["log-snr"] = {
    ("legacy-layout", "error"),
    NOT_PORTABLE,
    ("key-default", "warning"),
    ("tensor-unexpected", "error"),
    ("own-tables", "info"),
}
TOLD["ds41"] = TOLD["ds4"] - {("layout-taps", "info")} | {NOT_PORTABLE, ("tensor-missing", "error")}
TOLD["v4.1"] = {("legacy-layout", "error"), NOT_PORTABLE, ("tensor-missing", "error")}


def read(file: DraftFile, path: Path, target: Path | None = None) -> tuple[str, Draft | None, tuple[Finding, ...]]:
    with open_gguf(file.write(path)) as gguf:
        if target is None:
            reading = read_draft(gguf)
        else:
            with open_gguf(target) as theirs:
                reading = read_draft(gguf, theirs)
        return reading.dialect, reading.draft, lint(gguf, reading)


def told(findings: tuple[Finding, ...]) -> set[tuple[str, str]]:
    return {(finding.rule, finding.severity) for finding in findings}


def where(findings: tuple[Finding, ...], rule: str) -> list[str]:
    return [finding.where for finding in findings if finding.rule == rule]


@pytest.mark.parametrize("case", FILES)
def test_one_meaning_in_every_layout(tmp_path: Path, case: str) -> None:
    dialect, build, mainline = FILES[case]
    target = ds4_target(tmp_path / "target.gguf")
    kind = "dflash" if case == "ik-dflash" else "dspark"
    _, wanted, _ = read(mainline(), tmp_path / "mainline.gguf")
    named, draft, findings = read(build(), tmp_path / f"{kind}-x.gguf", target)
    assert wanted is not None
    assert (named, draft) == (dialect, wanted)
    rules = told(findings)
    if case == "ik-dflash":  # a draft of a target with its own head and embeddings needs neither
        rules -= {("own-tables", "info")}
    assert rules == TOLD[case]


@pytest.mark.parametrize("case", FILES)
def test_every_name_both_ways(case: str) -> None:
    dialect, build, mainline = FILES[case]
    wanted = set(mainline().tensors)
    for name in build().tensors:
        ours = mainline_name(dialect, name)
        if "log_snr" not in name:
            assert ours in wanted, name
        layers = 3 if "stages" in mainline.__name__ else 2
        assert dialect_name(dialect, ours, layers) == name


def test_published_sizes_without_a_target(tmp_path: Path) -> None:
    mainline = write_header(plain_stages(FLASH), tmp_path / "mainline.gguf")
    path = write_header(ds4(FLASH), tmp_path / "dspark-x.gguf")
    with open_gguf(path) as gguf, open_gguf(mainline) as other:
        reading, wanted = read_draft(gguf), read_draft(other)
    assert reading.draft == wanted.draft
    (finding,) = (finding for finding in reading.findings if finding.rule == "layout-sizes")
    assert finding.severity == "warning"
    assert "DeepSeek-V4-Flash" in finding.message


def test_sizes_that_nobody_knows(tmp_path: Path) -> None:
    _, draft, findings = read(ds4(), tmp_path / "dspark-x.gguf")
    assert draft is None
    (finding,) = (finding for finding in findings if finding.rule == "layout-sizes")
    assert (finding.severity, "--target-gguf" in finding.fix) == ("error", True)


def test_a_target_that_says_otherwise_counts(tmp_path: Path) -> None:
    target = ds4_target(tmp_path / "target.gguf", replace(FLASH, window=96, scale=2.5, used=7))
    with open_gguf(write_header(ds4(FLASH), tmp_path / "x.gguf")) as gguf, open_gguf(target) as theirs:
        draft = read_draft(gguf, theirs).draft
    assert draft is not None
    assert draft.deepseek4 is not None
    assert draft.sliding_window == 96
    assert (draft.deepseek4.expert_weights_scale, draft.deepseek4.n_expert_used) == (2.5, 7)


def test_sizes_of_another_model_are_not_taken(tmp_path: Path) -> None:
    draft, findings = read(ds4(), tmp_path / "dspark-x.gguf", plain().write(tmp_path / "target.gguf"))[1:]
    assert draft is None
    (finding,) = (finding for finding in findings if finding.rule == "layout-sizes")
    assert finding.message.startswith("the target does not state context_length, rope.freq_base")


@pytest.mark.parametrize(
    ("architecture", "dialect"),
    [
        ("deepseek4-dflash-draft", "deepseek4-dflash-draft"),
        ("deepseek_v4_flash_dspark_draft", "deepseek-v4-flash-dspark-draft"),
    ],
)
def test_private_containers_are_named(tmp_path: Path, architecture: str, dialect: str) -> None:
    file = plain()
    file.kv["general.architecture"] = (STRING, architecture, None)
    named, draft, findings = read(file, tmp_path / "dspark-x.gguf")
    assert (named, draft) == (dialect, None)
    assert "It is not read: " in findings[0].message
    assert told(findings) == {("legacy-layout", "error")}


def test_what_mainline_cannot_run_is_not_offered_to_be_rewritten(tmp_path: Path) -> None:
    (finding,) = (f for f in read(log_snr(), tmp_path / "dspark-x.gguf")[2] if f.rule == "legacy-layout")
    assert "--target-gguf" not in finding.fix
    (finding,) = (f for f in read(prism(), tmp_path / "dspark-y.gguf")[2] if f.rule == "legacy-layout")
    assert "--target-gguf" in finding.fix


def test_every_table_is_tried_and_whole() -> None:
    found = {path.name.removesuffix(".toml") for path in files("dspark_convert.ggufio.layouts").iterdir()}
    assert set(ORDER) == {name for name in found if not name.endswith((".py", "__pycache__"))}
    covered = {dialect for dialect, _, _ in FILES.values()} | {name for name in ORDER if layout_named(name).unreadable}
    assert covered == set(ORDER), "each layout needs a file in layout_files"
    for layout in layouts():
        assert layout.title
        assert layout.runs_on
        assert layout.differs or layout.is_mainline
    with pytest.raises(KeyError):
        layout_named("none")


def test_taps_beyond_all_numbers_are_read_as_they_are(tmp_path: Path) -> None:
    file = prism()
    file.kv["dspark.dspark.target_layers"] = (ARRAY, [0, 2, 2**32 - 1], U32)
    draft = read(file, tmp_path / "x.gguf")[1]
    assert draft is not None
    assert draft.target_layers == (1, 3, 2**32)


def test_a_foreign_file_in_the_other_byte_order(tmp_path: Path) -> None:
    _, wanted, _ = read(prism(), tmp_path / "little.gguf")
    with open_gguf(prism().write(tmp_path / "big.gguf", ">")) as gguf:
        assert read_draft(gguf).draft == wanted


def test_the_view_hands_out_mainlines_entries(tmp_path: Path) -> None:
    with open_gguf(prism().write(tmp_path / "x.gguf")) as gguf:
        seen = read_draft(gguf).view.file
        block, taps = seen.metadata.kv("dflash.block_size"), seen.metadata.held("dflash.target_layers")
        tensor = seen.tensor("enc.output_norm.weight")
        assert tensor is not None
        assert bytes(seen.data(tensor)) == bytes(gguf.data(next(t for t in gguf.tensors if "hidden_norm" in t.name)))
        assert (block.key, block.value, block.raw) == ("dflash.block_size", 7, (7).to_bytes(4, "little"))
        assert (taps.key, taps.value, taps.raw) == ("dflash.target_layers", [1, 3, 5], None)
        assert seen.metadata["general.architecture"] == "dflash"
        assert "dspark.dspark.block_size" not in seen.metadata


def test_a_base_of_the_target_that_is_the_drafts_own_changes_nothing(tmp_path: Path) -> None:
    file = ik()
    file.kv["dflash-draft.dflash.backbone_rotary_base"] = (F32, 1e6, None)
    assert told(read(file, tmp_path / "dspark-x.gguf")[2]) == TOLD["ik"]


def test_conditioning_that_is_off_is_mainlines(tmp_path: Path) -> None:
    file = plain()
    file.kv["dflash.log_snr_conditioning"] = (BOOL, False, None)
    assert read(file, tmp_path / "dspark-x.gguf")[0] == "dflash"
