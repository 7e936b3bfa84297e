"""Charts and the page: well-formed, self-contained, true to the figures, safe with any file name."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from dspark_convert.bench.charts import charts_of, nice_step
from dspark_convert.bench.page import page_of
from dspark_convert.bench.picture import png_of, require_png, svg_of
from dspark_convert.bench.records import Setting
from dspark_convert.bench.svg import DARK, LIGHT
from dspark_convert.cli.bench_view import show_bench
from dspark_convert.cli.output import Output
from tests.bench.made import made_report, made_round, made_turn, swept_report

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Checks that elements nest, and collects what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_needs_nothing_else() -> None:
    text = page_of(swept_report())
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.names)
    assert not {"src", "href", "xlink:href", "srcset", "action", "style"} & {name for name, _ in page.attributes}
    assert not re.search(r"https?:|url\(|@import|@font-face", text)
    assert page.names.count("svg") == 4
    assert "prefers-color-scheme: dark" in text
    assert all(colour in text for colour in [*LIGHT.values(), *DARK.values()])


def test_page_says_what_is_the_pairs_and_what_the_machines() -> None:
    text = page_of(swept_report())
    assert "The pair: greedy acceptance, the same on every machine" in text
    assert "This machine: speed with 2 threads" in text
    assert swept_report().machine.verdict in text
    assert "--spec-draft-n-max" in text


@pytest.mark.parametrize("pays", [True, False])
def test_a_draft_that_does_not_pay_is_not_recommended(pays: bool, capsys: pytest.CaptureFixture[str]) -> None:
    report = made_report([made_turn({Setting(4): [made_round(4, ms=30.0 if pays else 90.0)] * 50})])
    assert report.machine.verdict.startswith("Pays: " if pays else "Does not pay here: ")
    show_bench(Output(), report)
    for text in (page_of(report), capsys.readouterr().out):
        assert ("Run it with" in text, "To try it all the same" in text) == (pays, not pays)


def test_names_of_files_are_text() -> None:
    text = page_of(swept_report('a<script>alert("x")<b>&.gguf'))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    Page(text)


def test_a_page_without_sweep_head_or_tokens() -> None:
    whole = Setting(4)
    for rounds in ([made_round(2)], []):
        report = made_report([made_turn({whole: rounds})])
        assert Page(page_of(report)).names.count("svg") == (2 if rounds else 1)
        ElementTree.fromstring(svg_of(report))  # noqa: S314 - made here


def test_a_broken_draft_is_said_so() -> None:
    whole = Setting(4)
    rounds = [made_round(accepted) for accepted in [0] * 60 + [1] * 35 + [2] * 5]
    report = made_report([made_turn({whole: rounds})])
    assert [finding.rule for finding in report.findings] == ["acceptance-falls"]
    assert "[acceptance-falls]" in page_of(report)
    nothing = made_report([made_turn({whole: [made_round(0)] * 50})])
    assert [finding.rule for finding in nothing.findings] == ["acceptance-floor"]


def test_svg_is_drawn_to_scale() -> None:
    report = swept_report()
    root = ElementTree.fromstring(svg_of(report))  # noqa: S314 - made here
    charts = root.findall(f"{SVG}svg")
    assert len(charts) == len(charts_of(report)) == 4
    bars = [bar for bar in charts[0].findall(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    heights = [float(bar.attrib["height"]) for bar in bars]
    shares = [report.pair.acceptance.share(position) for position in range(4)]
    axis = next(float(line.attrib["y1"]) for line in charts[0].iter(f"{SVG}line") if line.get("class") == "axis")
    top = min(float(line.attrib["y1"]) for line in charts[0].iter(f"{SVG}line") if line.get("class") == "grid")
    assert heights == pytest.approx([share * (axis - top) for share in shares], abs=0.1)
    assert axis - top == 340 - 60 - 48  # the grid's highest line is 100%
    assert len(charts[0].findall(f"{SVG}polygon")) == 4 + 1  # and the legend's
    for chart in charts:
        for text in chart.findall(f"{SVG}text"):
            assert 0 <= float(text.attrib["x"]) <= 640
            assert 0 <= float(text.attrib["y"]) <= 340
        assert chart.attrib["role"] == "img"
        assert chart.attrib["aria-label"]


def test_marks_differ_in_shape_not_in_colour_alone() -> None:
    root = ElementTree.fromstring(svg_of(swept_report()))  # noqa: S314 - made here
    shapes = {(mark.tag, mark.get("class")) for mark in root.iter() if mark.get("class") in ("bar", "diamond", "dot")}
    assert {tag for tag, _ in shapes} == {f"{SVG}rect", f"{SVG}polygon", f"{SVG}circle"}


def luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("side", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(side: dict[str, str]) -> None:
    def contrast(name: str) -> float:
        high, low = sorted((luminance(side[name]), luminance(side["paper"])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    assert contrast("ink") >= 7 and contrast("soft") >= 4.5
    assert contrast("one") >= 3 and contrast("two") >= 3  # WCAG's for graphics


def test_steps_of_an_axis() -> None:
    assert [nice_step(value) for value in (0.3, 0.5, 0.06, 1.2, 7.0)] == pytest.approx([0.5, 0.5, 0.1, 2.0, 10.0])


def test_png() -> None:
    require_png()
    data = png_of(swept_report())
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (1280, 4 * 680)
