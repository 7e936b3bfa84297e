"""What dspark-bench shows on a screen and writes into files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from dspark_convert.bench.lines import (
    acceptance_lines,
    calibration_lines,
    calibration_sentence,
    cost_lines,
    kind_lines,
    milliseconds,
    spread_sentence,
)
from dspark_convert.bench.report import BenchReport, MachinePart, PairPart
from dspark_convert.bench.terminal import Glyphs, glyphs_for
from dspark_convert.bench.words import (
    PAIR_HEADING,
    command_heading,
    heading_of,
    limits_of,
    machine_heading,
    mean_length,
    same_texts,
)
from dspark_convert.cli.output import Output, wrapped
from dspark_convert.cli.text import safe
from dspark_convert.errors import EnvironmentFault, UsageError

BOLD = "1"

#: files of these kinds begin so, and may be written over
BEGINNINGS = {"--html": b"<!DOCTYPE html>", "--svg": b"<svg ", "--png": b"\x89PNG"}


def show_bench(out: Output, report: BenchReport) -> None:
    """With --quiet only what is wrong, on stderr."""
    if out.quiet:
        out.findings(report.findings)
        return
    glyphs = glyphs_for(sys.stdout.encoding)
    out.line(safe(heading_of(report)), BOLD)
    out.fields([("library", f"{report.library['path']} ({report.library['source']})")])
    out.human("")
    _show_pair(out, report.pair, glyphs)
    _show_machine(out, report, glyphs)
    for sentence in limits_of(report.conditions):
        _prose(out, sentence)
    out.human("")
    out.line(command_heading(report), BOLD)
    out.human(f"  {report.command}")
    out.findings(report.findings, result=True)


def _show_pair(out: Output, pair: PairPart, glyphs: Glyphs) -> None:
    out.line(PAIR_HEADING, BOLD)
    for line in acceptance_lines(pair.acceptance, glyphs):
        out.line(line)
    out.human("")
    if len(pair.kinds) > 1:
        for line in kind_lines(pair):
            out.line(line)
        out.human("")
    _prose(out, mean_length(pair))
    _prose(out, f"{pair.diagnosis.text[:1].upper()}{pair.diagnosis.text[1:]}.")
    _prose(out, same_texts(pair))
    out.human("")
    if pair.calibration:
        for line in calibration_lines(pair.calibration, glyphs):
            out.line(line)
        _prose(out, calibration_sentence(pair.calibration))
        out.human("")


def _show_machine(out: Output, report: BenchReport, glyphs: Glyphs) -> None:
    machine = report.machine
    out.line(machine_heading(report), BOLD)
    if machine.plain:
        step = machine.plain
        around = f"half of them within {milliseconds(step.low)} to {milliseconds(step.high)}"
        _prose(
            out,
            f"Plain decoding: {milliseconds(step.median)} ms a token ({around}), {1e3 / step.median:,.1f} tokens/s.",
        )
    _show_costs(out, machine, glyphs)
    _prose(out, machine.verdict, BOLD)


def _show_costs(out: Output, machine: MachinePart, glyphs: Glyphs) -> None:
    out.human("")
    for name, costs in (("n-max", machine.n_max), ("p-min", machine.p_min)):
        if costs and (name == "n-max" or len(costs) > 1):
            for line in cost_lines(list(costs), name, glyphs):
                out.line(line)
            out.human("")
    if machine.settings:
        _prose(out, spread_sentence(machine.settings))


def _prose(out: Output, text: str, colour: str = "") -> None:
    for line in wrapped(safe(text), ""):
        out.line(line, colour)


def require_writable(files: Mapping[str, Path | None]) -> None:
    """Raise UsageError, or EnvironmentFault for PNG and permissions, before anything is measured if a picture cannot
    be written.

    Nor is a file written over that is none of its kind: it may be the draft.
    """
    for option, path in files.items():
        if path is None:
            continue
        directory = path.resolve().parent
        message = f"{option} {path} cannot be written; name a file in a directory that can."
        if path.is_dir() or not directory.is_dir():
            raise UsageError(message)
        if not os.access(directory, os.W_OK):
            raise EnvironmentFault(message)
        if path.is_file():
            with path.open("rb") as stream:
                start = stream.read(len(BEGINNINGS[option]))
            if start not in (b"", BEGINNINGS[option]):
                raise UsageError(f"{option} {path}: the file exists and is another kind of file; choose another name.")
    if files.get("--png"):
        from dspark_convert.bench.picture import require_png

        require_png()


def write_pictures(report: BenchReport, *, html: Path | None, svg: Path | None, png: Path | None) -> None:
    """Write the files that were asked for; they replace others of their names."""
    from dspark_convert.bench.page import page_of
    from dspark_convert.bench.picture import png_of, svg_of

    if html:
        html.write_text(page_of(report), "utf-8")
    if svg:
        svg.write_text(svg_of(report), "utf-8")
    if png:
        png.write_bytes(png_of(report))
