"""docs/validation.md lists the libraries that are run here, as they are."""

from __future__ import annotations

from pathlib import Path

from tests.libraries.builds import BUILDS, TOO_OLD


def test_every_build_has_its_row() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "validation.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    for build in BUILDS:
        (row,) = [row for row in rows if build.package.version in row[0]]
        assert row[1:3] == [", ".join(build.layouts), build.injection.replace("+", ", ")]
        assert ("anchor-first" in row[3]) is not build.reads_anchor
        assert ("tables of their own" in row[3]) is not build.own_tables
    assert any(TOO_OLD.package.version in row[0] and "too old" in row[3] for row in rows if len(row) == 4)
