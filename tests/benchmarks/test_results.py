"""Medians, verdicts and tables, from made-up measurements."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import Usage
from benchmarks.results import HEADS, Result, cells, summary, table
from benchmarks.rows import Row

MACHINE = {
    "cpu": "a processor",
    "cores": 2,
    "memory": 8e9,
    "kernel": "6.1",
    "filesystem": "ext4",
    "python": "3.11.1",
    "load": 0.1,
    "runs": 3,
}


def row(**changes: Any) -> Row:
    values: dict[str, Any] = {"must": 8, "aim": 14, "peak_must": 150e6, "peak_aim": 100e6, **changes}
    return Row("Q bf16", lambda _: [], lambda *_: [], **values)


def runs(*walls: float, peak: float = 90e6) -> list[Usage]:
    return [Usage(wall, wall / 2, int(peak), 0) for wall in walls]


def test_the_ratio_is_the_median_of_the_ratios_of_the_turns() -> None:
    # ratios 10, 2 and 20; of the medians it would be 5
    result = Result(row(), ours=runs(1, 10, 2), theirs=runs(10, 20, 40))
    assert result.figure == 10


def test_the_ratio_may_be_of_processor_time() -> None:
    theirs = [Usage(1, 30, 0, 0)]
    assert Result(row(measure="cpu"), ours=[Usage(1, 2, 0, 0)], theirs=theirs).figure == 15


def test_without_a_peer_the_seconds_count() -> None:
    alone = Row("--help", lambda _: [], measure="cpu", must=0.5, aim=0.3)
    for wall, verdict in ((0.4, "aim"), (0.8, "must"), (1.2, "missed")):
        result = Result(alone, ours=runs(wall))
        assert (result.figure, result.verdicts) == (wall / 2, [("speed", verdict)])
        assert result.missed == (verdict == "missed")


def test_verdicts() -> None:
    for ratio, verdict in ((14, "aim"), (8, "must"), (7.9, "missed")):
        result = Result(row(), ours=runs(1), theirs=runs(ratio))
        assert result.verdicts == [("speed", verdict), ("memory", "aim")]


def test_memory_is_the_worst_of_the_runs() -> None:
    result = Result(row(), ours=[*runs(1), *runs(1, peak=151e6)], theirs=runs(20, 20))
    assert result.verdicts[1] == ("memory", "missed")
    assert result.missed


def test_bytes_read_count_where_there_is_a_limit() -> None:
    limited = Row("--dry-run", lambda _: [], measure="cpu", must=2, read_must=50e6)
    assert Result(limited, ours=[Usage(1, 1, 0, 60_000_000)]).missed
    assert not Result(limited, ours=[Usage(1, 1, 0, 40_000_000)]).missed


def test_a_failed_row_is_missed_and_says_why() -> None:
    result = Result(row(), failed="failed: exit code 4: no space")
    assert result.missed
    assert cells(result.to_json())[-1] == "failed: exit code 4: no space"


def test_the_table() -> None:
    results = [
        Result(row(), ours=runs(1.234), theirs=runs(23.45, peak=5.058e9), copies=[(0.987, 2.1), (0.5, 2.3), (3, 4)]),
        Result(Row("--help", lambda _: [], measure="cpu", must=0.5, aim=0.3), ours=runs(0.123)),
    ]
    text = table({"machine": MACHINE, "rows": [result.to_json() for result in results]})
    lines = text.splitlines()
    assert lines[0] == "2 cores of a processor, 8 GB, Linux 6.1, ext4, Python 3.11.1; medians of 3 runs in turns."
    assert lines[4] == (
        "| Q bf16 | 23 / 12 / 5058 | 1.2 / 0.62 / 90 | 0.99 / 2.3 | 19× | 8× | 14× | speed: aim, memory: aim |"
    )
    assert lines[5] == "| --help |  | 0.12 / 0.061 / 90 |  |  | 0.5 s | 0.3 s | speed: aim |"
    assert all(line.count("|") == len(HEADS) + 1 for line in lines[2:])
    assert ", load average 3.5 before; medians" in table({"machine": MACHINE | {"load": 3.47}, "rows": []})


def test_the_summary_has_the_conversions_that_ran() -> None:
    alone = Row("q q4_k", lambda _: [])
    results = [
        Result(row(), ours=runs(1.234), theirs=runs(23.45, peak=5.058e9), copies=[(0.987, 2)]),
        Result(alone, ours=runs(4), copies=[(0.3, 2)]),
        Result(row(), failed="failed", copies=[(0.3, 2)]),
        Result(Row("--help", lambda _: []), ours=runs(0.123)),
    ]
    lines = summary({"machine": MACHINE, "rows": [result.to_json() for result in results]}).splitlines()
    assert lines[2:4] == [
        "| Q bf16 | 23 s, 5058 MB | 1.2 s, 90 MB | 19× | 0.99 s |",
        "| q q4_k | cannot | 4.0 s, 90 MB |  | 0.30 s |",
    ]
    assert lines[5].startswith("2 cores of a processor")
