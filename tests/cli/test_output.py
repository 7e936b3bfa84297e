"""The sink: what goes to which stream, and that a file's strings cannot drive the terminal."""

from __future__ import annotations

import io
import json
import math
import sys

import pytest

from dspark_convert.cli.output import Output, coloured, print_findings, wrapped
from dspark_convert.cli.text import abridged, human_bytes, safe, safe_lines
from dspark_convert.cli.validate import show_report
from dspark_convert.findings import error, info, warning
from dspark_convert.runtime.report import Check, ValidationReport


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain ünïcode 漢字", "plain ünïcode 漢字"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb\nc\x07", "a\\rb\\nc\\x07"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\u2066\u200b\ufeff", "\\u2066\\u200b\\ufeff"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("::set-output name=a::b", "\\x3a:set-output name=a::b"),
        ("  ::error::x", "  \\x3a:error::x"),
        ("a ##[error]x ##vso[y] ## z", "a \\x23#[error]x \\x23#vso[y] ## z"),
        ("std::vector", "std::vector"),
    ],
)
def test_safe_escapes_all_that_is_not_plainly_visible(raw: str, shown: str) -> None:
    assert safe(raw) == shown


def test_safe_cuts_long_text_and_tells_its_length() -> None:
    assert safe("x" * 1234, 3) == "xxx… (1,234 characters)"
    assert safe_lines("a\n\x1bb") == "a\n\\x1bb"


def test_what_a_message_says_about_a_long_name_is_kept() -> None:
    assert abridged("x\x1b" + "y" * 998) == "x\\x1b" + "y" * 998
    cut = abridged("tensor " + "z" * 50_000 + "\n is missing")
    assert cut.startswith("tensor zzz")
    assert cut.endswith("zzz\\n is missing (50,019 characters)")
    assert len(cut) < 1050


def test_a_finding_about_a_long_name_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    name = "z" * 50_000
    print_findings([error("tensor-unknown", name, f"{name} is unknown."), error("a", name, "b")], sys.stdout)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) < 1100
    assert lines[0].endswith("z is unknown (50,011 characters) [tensor-unknown]")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_290_000_000, "1.29 GB"), (999_600, "1 MB")],
)
def test_human_bytes(count: int, shown: str) -> None:
    assert human_bytes(count) == shown


def test_findings_are_told_worst_first_and_escaped() -> None:
    stream = io.StringIO()
    print_findings(
        [info("a-b", "k", "m"), warning("c-d", "k\n::error", "m", "do x"), error("e-f", "t", "\x1b[1m")],
        stream,
    )
    assert stream.getvalue().splitlines() == [
        "error: t: \\x1b[1m [e-f]",
        "warning: k\\n::error: m [c-d]",
        "  fix: do x",
        "info: k: m [a-b]",
    ]


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert coloured(Terminal(), "1", "x") == "\x1b[1mx\x1b[0m"
    assert coloured(io.StringIO(), "1", "x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured(Terminal(), "1", "x") == "x"


def test_json_keeps_order_and_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).json({"z": math.nan, "a": [math.inf, 1.5, {"k": (1, "\u202e")}]})
    text = capsys.readouterr().out
    assert list(json.loads(text)) == ["z", "a"]
    assert json.loads(text) == {"z": None, "a": [None, 1.5, {"k": [1, "\u202e"]}]}
    assert text.isascii()
    Output().json({"a": 1})
    assert capsys.readouterr().out == ""


def test_streams(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    output.human("result\x1b")
    output.note("note")
    output.fields([("name", "va\x1blue")])
    output.table(["tensor", "bytes"], [["fc.weight\n", 12]], right="bytes")
    output.findings([error("r", "w", "on stderr")])
    output.findings([error("r", "w", "on stdout")], result=True)
    captured = capsys.readouterr()
    assert "result\\x1b\n" in captured.out
    assert "va\\x1blue" in captured.out
    assert "fc.weight\\n" in captured.out
    assert "on stdout" in captured.out
    assert "on stderr" not in captured.out
    assert captured.err == "note\nerror: w: on stderr [r]\n"
    assert "\x1b" not in captured.out + captured.err


def test_quiet_tells_errors_only(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(quiet=True)
    output.human("x")
    output.note("x")
    output.fields([("a", 1)])
    output.table(["a"], [[1]])
    output.findings([error("r", "w", "bad"), info("i", "w", "meh")], result=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: w: bad [r]\n"


def test_markup_in_a_file_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    Output().fields([("name", "[bold]:smile:[/bold]")])
    assert "[bold]:smile:[/bold]" in capsys.readouterr().out


def test_progress_goes_to_stderr_and_not_with_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dspark_convert.cli.progress.LINE_SECONDS", 0.0)
    for output, total in ((Output(quiet=True), 10), (Output(), 0)):
        with output.progress("writing", total) as advance:
            advance(5)
        assert capsys.readouterr() == ("", "")
    with Output(json=True).progress("writing", 10) as advance:
        advance(5)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("writing: 5 B of 10 B (50 %), ")


def test_short_lists_are_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    assert wrapped("a shape is [4096, 4096]; the other [1, 2, 3]", "error: ") == [
        "error: a shape is",
        "       [4096, 4096]; the other",
        "       [1, 2, 3]",
    ]
    assert wrapped("short", "x: ") == ["x: short"]


def test_no_broken_line_commands_a_ci_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    out = Output()
    out.fields([("made from", "x" * 60 + " ::set-output name=a::b")])
    # A table breaks within words.
    out.table(["name", "type"], [("x" * 73 + "::set-output name=a::b", "F32")])
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.lstrip().startswith("\\x3a:set-output")]) == 2
    assert not [line for line in lines if line.lstrip().startswith("::")]


def test_a_field_is_short_whatever_the_file_says(capsys: pytest.CaptureFixture[str]) -> None:
    Output().fields([("made from", "x" * 1_000_000 + " at y")])
    told = capsys.readouterr().out
    assert len(told) < 1100
    assert told.endswith("at y (1,000,005 characters)\n")


def test_a_sentence_in_a_table_is_told_whole(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "88 blocks are the checkpoint's to within " + "0.025 and " * 30 + "no more."
    report = ValidationReport({}, (Check("parity", "pass", sentence),))
    show_report(Output(), report)
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert "0 characters)" in _table_of("x" * 500, capsys)  # a name is not


def _table_of(cell: str, capsys: pytest.CaptureFixture[str]) -> str:
    Output().table(["name"], [[cell]])
    return capsys.readouterr().out
