"""What was measured, row by row: medians, verdicts, and the tables that show them."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Usage
from benchmarks.rows import Row

HEADS = ("", "peer: s / CPU-s / MB", "ours: s / CPU-s / MB", "`cat` / and fsync: s", "ratio", "must", "aim", "verdict")

#: processes that wanted a core before the first run; with more the figures are those of a busy machine
BUSY = 0.5


@dataclass
class Result:
    """The runs of a row, in the order in which they took place; ``failed`` says why there are none."""

    row: Row
    ours: list[Usage] = field(default_factory=list)
    theirs: list[Usage] = field(default_factory=list)
    copies: list[tuple[float, float]] = field(default_factory=list)
    failed: str | None = None

    @property
    def figure(self) -> float | None:
        """The ratio that ``must`` speaks of, else the seconds; medians of what was taken in turns."""
        if not self.ours:
            return None
        own: list[float] = [getattr(usage, self.row.measure) for usage in self.ours]
        if self.row.theirs is None:
            return statistics.median(own)
        peer: list[float] = [getattr(usage, self.row.measure) for usage in self.theirs]
        return statistics.median(a / b for a, b in zip(peer, own, strict=False)) if peer else None

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        """(what, "aim", "must" or "missed") for each target that the row has and that was measured."""
        row, figure = self.row, self.figure
        told = []
        if figure is not None and row.must is not None:
            sign = -1 if row.theirs is None else 1
            told.append(("speed", _verdict(sign * figure, sign * row.must, row.aim and sign * row.aim)))
        if self.ours and row.peak_must is not None:
            peak = max(usage.peak for usage in self.ours)
            told.append(("memory", _verdict(-peak, -row.peak_must, row.peak_aim and -row.peak_aim)))
        if self.ours and row.read_must is not None:
            told.append(("bytes read", _verdict(-max(usage.read for usage in self.ours), -row.read_must, None)))
        return told

    @property
    def missed(self) -> bool:
        return self.failed is not None or any(verdict == "missed" for _, verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        def usage(runs: Sequence[Usage]) -> dict[str, Any] | None:
            if not runs:
                return None
            middle = {key: statistics.median(getattr(run, key) for run in runs) for key in ("wall", "cpu", "read")}
            return {**middle, "peak": max(run.peak for run in runs), "runs": len(runs)}

        return {
            "name": self.row.name,
            "note": self.row.note,
            "measure": self.row.measure,
            "peer": usage(self.theirs),
            "ours": usage(self.ours),
            "cat": [statistics.median(seconds) for seconds in zip(*self.copies, strict=True)],
            "figure": self.figure,
            "unit": "s" if self.row.theirs is None else "x",
            "must": self.row.must,
            "aim": self.row.aim,
            "verdicts": dict(self.verdicts),
            "failed": self.failed,
        }


def _verdict(figure: float, must: float, aim: float | None) -> str:
    """More is better."""
    if figure < must:
        return "missed"
    return "aim" if aim is not None and figure >= aim else "must"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The cells of HEADS for a row in JSON: two digits, for the noise is larger than the third."""

    def usage(values: dict[str, Any] | None) -> str:
        return f"{two(values['wall'])} / {two(values['cpu'])} / {values['peak'] / 1e6:.0f}" if values else ""

    def target(value: float | None) -> str:
        return "" if value is None else f"{value:g}×" if row["unit"] == "x" else f"{value:g} s"

    name = row["name"] + (f" ({row['note']})" if row["note"] else "")
    if row["failed"]:
        return (name, usage(row["peer"]), "", "", "", target(row["must"]), target(row["aim"]), row["failed"])
    figure = "" if row["figure"] is None or row["unit"] == "s" else f"{two(row['figure'])}×"
    verdict = ", ".join(f"{what}: {word}" for what, word in row["verdicts"].items())
    copy = " / ".join(map(two, row["cat"]))
    return (
        name,
        usage(row["peer"]),
        usage(row["ours"]),
        copy,
        figure,
        target(row["must"]),
        target(row["aim"]),
        verdict,
    )


def two(value: float) -> str:
    """``value`` with two significant digits, and all of those before the point."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:#.2g}"


def table(document: dict[str, Any]) -> str:
    """The whole as Markdown: the machine, then a row a line."""
    lines = [machine_line(document["machine"]), "", f"| {' | '.join(HEADS)} |", "|" + " --- |" * len(HEADS)]
    lines += [f"| {' | '.join(cells(row))} |" for row in document["rows"]]
    return "\n".join(lines) + "\n"


def summary(document: dict[str, Any]) -> str:
    """What a reader of the README wants to know: who takes how long and how much memory."""
    heads = ("", "llama.cpp's converter", "dspark-convert", "ratio", "`cat`")
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for row in document["rows"]:
        if row["failed"] or not row["cat"]:
            continue

        def usage(values: dict[str, Any] | None) -> str:
            return f"{two(values['wall'])} s, {values['peak'] / 1e6:.0f} MB" if values else "cannot"

        ratio = f"{two(row['figure'])}×" if row["peer"] else ""
        copy = f"{two(row['cat'][0])} s"
        lines.append(f"| {row['name']} | {usage(row['peer'])} | {usage(row['ours'])} | {ratio} | {copy} |")
    return "\n".join([*lines, "", machine_line(document["machine"]), ""])


def machine_line(machine: dict[str, Any]) -> str:
    runs = "one run each" if machine["runs"] == 1 else f"medians of {machine['runs']} runs in turns"
    busy = f", load average {machine['load']:.1f} before" if machine["load"] >= BUSY else ""
    return (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory'] / 1e9:.0f} GB, Linux {machine['kernel']}, "
        f"{machine['filesystem']}, Python {machine['python']}{busy}; {runs}."
    )


def machine(work: Path, runs: int) -> dict[str, Any]:
    """What the figures are measured on; to be called before anything is run."""
    info = Path("/proc/cpuinfo").read_text("utf-8")
    model = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), "")
    return {
        "cpu": model or platform.machine(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release().split("-")[0],
        "filesystem": _filesystem(work.resolve()),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "runs": runs,
    }


def _filesystem(path: Path) -> str:
    """The type of the file system that ``path`` is on."""
    best, kind = "", "?"
    for line in Path("/proc/self/mounts").read_text("utf-8").splitlines():
        _, point, name, *_ = line.split()
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, name
    return kind
