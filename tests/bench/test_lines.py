"""The report on a terminal: 80 columns, and readable where only ASCII is."""

from __future__ import annotations

import pytest

from dspark_convert.bench.lines import acceptance_lines, calibration_lines, cost_lines, kind_lines, spread_sentence
from dspark_convert.bench.report import BenchReport
from dspark_convert.bench.terminal import ASCII, FINE, Glyphs, bar, glyphs_for
from tests.bench.made import swept_report


def test_bars() -> None:
    assert bar(0.5, 8, FINE) == "████"
    assert bar(0.5, 8, ASCII) == "####"
    assert bar(9 / 16, 8, FINE) == "████▌"
    assert bar(9 / 16, 8, ASCII) == "####"
    assert bar(0.25, 8, ASCII, mark=0.99) == "##     o"
    assert bar(0.5, 8, ASCII, mark=0.2, rule=0.75) == "#o##  |"
    assert bar(0.25, 8, ASCII, mark=0.5, rule=0.5) == "##  o"
    assert [bar(value, 4, ASCII) for value in (-1.0, 0.0, 1.0, 7.0)] == ["", "", "####", "####"]
    assert bar(0.0, 4, ASCII, mark=float("nan")) == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", None, "no-such-encoding"])
def test_ascii_where_the_characters_are_missing(encoding: str | None) -> None:
    assert glyphs_for(encoding) is ASCII


def test_fine_bars_where_they_are_not() -> None:
    assert glyphs_for("utf-8") is FINE


def all_lines(report: BenchReport, glyphs: Glyphs) -> list[str]:
    calibration = report.pair.calibration
    assert calibration is not None
    return [
        *acceptance_lines(report.pair.acceptance, glyphs),
        *kind_lines(report.pair),
        *calibration_lines(calibration, glyphs),
        *cost_lines(list(report.machine.n_max), "n-max", glyphs),
        *cost_lines(list(report.machine.p_min), "p-min", glyphs),
    ]


@pytest.mark.parametrize("glyphs", [FINE, ASCII], ids=["fine", "ascii"])
def test_nothing_is_wider_than_80_columns(glyphs: Glyphs) -> None:
    lines = all_lines(swept_report(), glyphs)
    assert len(lines) == 20
    assert [line for line in lines if len(line) > 80] == []
    assert all(line.isascii() for line in lines) == (glyphs is ASCII)


def test_figures_and_bars_agree() -> None:
    report = swept_report()
    acceptance = report.pair.acceptance
    rows = list(acceptance_lines(acceptance, ASCII))[1:]
    assert len(rows) == 4
    for position, row in enumerate(rows):
        cells = row.split()
        assert cells[:3] == [str(position), str(acceptance.drafted[position]), str(acceptance.accepted[position])]
        assert float(cells[3]) == pytest.approx(acceptance.share(position), abs=1e-3)
        bars = row[46:]
        # the mark may stand on the bar's last cell
        assert abs((bars.count("#") + bars.count("o")) / 24 - acceptance.share(position)) <= 2 / 24
    speeds = [row.split() for row in cost_lines(list(report.machine.n_max), "n-max", ASCII)][1:]
    assert [float(row[8].rstrip("x")) for row in speeds] == pytest.approx(
        [cost.speed.median for cost in report.machine.n_max], abs=0.005
    )


def test_scatter_is_told() -> None:
    steady = spread_sentence(swept_report().machine.settings)
    assert "Half of the rounds lie within 0% of these times" in steady
    assert "busy" not in steady
