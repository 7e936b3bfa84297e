"""Measures every row of the target table: ours and llama.cpp's converter in turns.

    python -m benchmarks.run DIRECTORY                  everything; ten minutes, 20 GB free
    python -m benchmarks.run DIRECTORY --rows 'q *'     some rows
    python -m benchmarks.run --list                     their names

The exit code is 1 if a "must" was missed or a row failed.
"""

from __future__ import annotations

import argparse
import compileall
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import arch_specs
import dspark_convert
from benchmarks.measure import Failed, measure
from benchmarks.peer import Peer, fetch
from benchmarks.results import Result, cells, machine, table
from benchmarks.rows import ROWS, Bench, Row, check_space


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.run", description=__doc__.splitlines()[0])
    parser.add_argument("work", nargs="?", type=Path, metavar="DIRECTORY", help="inputs, outputs and the peer")
    parser.add_argument("--rows", action="append", metavar="PATTERN", help="only rows of such names (as in a shell)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each row (3)")
    parser.add_argument("--no-peer", action="store_true", help="measure ours alone")
    parser.add_argument("--peer-python", type=Path, metavar="PATH", help="a Python that has torch and transformers")
    parser.add_argument("--peer-source", type=Path, metavar="DIR", help="llama.cpp's source")
    parser.add_argument("--keep", action="store_true", help="keep the last outputs of each row")
    parser.add_argument("--out", type=Path, metavar="STEM", help="write STEM.md and STEM.json (DIRECTORY/results)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and end")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    wanted = options.rows or ["*"]
    rows = tuple(row for row in ROWS if any(fnmatch.fnmatchcase(row.name, pattern) for pattern in wanted))
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows or options.work is None:
        print("give a directory to work in, and rows that --list names", file=sys.stderr)
        return 2
    work = options.work.resolve()
    check_space(work, rows)
    bench = Bench(work, _peer(options, work))
    _compile()
    described = machine(work, options.runs)
    results = []
    for row in rows:
        results.append(result := run_row(row, bench, options.runs, keep=options.keep))
        print(" | ".join(cells(result.to_json())), flush=True)
    document = {"machine": described, "rows": [result.to_json() for result in results]}
    stem = options.out or work / "results"
    stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    stem.with_suffix(".md").write_text(table(document), "utf-8")
    print(f"\n{table(document)}\nwritten to {stem}.md and .json")
    return int(any(result.missed for result in results))


def _compile() -> None:
    """As pip does with what it installs: a checkout may be compiled in each run (PYTHONDONTWRITEBYTECODE)."""
    for directory in (*dspark_convert.__path__, *arch_specs.__path__):
        compileall.compile_dir(directory, quiet=1)


def _peer(options: argparse.Namespace, work: Path) -> Peer | None:
    if options.no_peer:
        return None
    if options.peer_python and options.peer_source:
        return Peer(options.peer_python.absolute(), options.peer_source.resolve())
    return fetch(work)


def run_row(row: Row, bench: Bench, runs: int, *, keep: bool = False) -> Result:
    """Measure ``row``, the peer and ours in turns; what was written is deleted after each run unless ``keep``."""
    result = Result(row)
    try:
        ours = row.ours(bench)
        theirs = row.theirs(bench, bench.peer) if row.theirs and bench.peer else None
        files = bench.draft(row.copied).files if row.copied else []
        _warm(files)
        for _ in range(runs):
            if files:
                result.copies.append(_copy(files, bench.work / "copy"))
            if theirs:
                _settle(bench, keep=False)
                result.theirs.append(measure(theirs, bench.work))
            _settle(bench, keep=False)
            result.ours.append(measure(ours, bench.work))
    except (Failed, subprocess.CalledProcessError, OSError) as fault:
        result.failed = f"failed: {fault}"
    _settle(bench, keep=keep)
    return result


def _settle(bench: Bench, *, keep: bool) -> None:
    """Delete the outputs, and let what is still to be written reach the disk: the next run does not pay for it."""
    if not keep:
        for path in (bench.outfile, bench.peer_outfile):
            path.unlink(missing_ok=True)
    os.sync()


def _warm(files: list[Path]) -> None:
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _copy(files: list[Path], to: Path) -> tuple[float, float]:
    """Seconds that ``cat`` takes for the same bytes, and with these on the disk."""
    cat = shutil.which("cat") or "cat"
    os.sync()
    start = time.perf_counter()
    with to.open("wb") as out:
        subprocess.run([cat, *files], stdout=out, check=True)
        copied = time.perf_counter()
        os.fsync(out.fileno())
        synced = time.perf_counter()
    to.unlink()
    return copied - start, synced - start


if __name__ == "__main__":
    sys.exit(main())
