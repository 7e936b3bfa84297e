"""The rows of the target table: what is run, and what the ratio to the peer must and should be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drafts import Draft, make
from benchmarks.peer import Peer

Command = list[str | Path]

#: of every conversion
PEAK_MUST, PEAK_AIM = 150e6, 100e6


@dataclass(frozen=True)
class Bench:
    """Where the runs take place: inputs and outputs lie in ``work``; without a peer ours runs alone."""

    work: Path
    peer: Peer | None

    def draft(self, name: str) -> Draft:
        return make(self.work, name)

    @property
    def outfile(self) -> Path:
        return self.work / "ours.gguf"

    @property
    def peer_outfile(self) -> Path:
        return self.work / "peer.gguf"


@dataclass(frozen=True)
class Row:
    """One measurement. ``must`` and ``aim`` are ratios (peer by ours, of ``measure``) where there is a peer, else
    seconds that ours may take; ``ours`` and ``theirs`` give the commands and are called before anything is measured.
    """

    name: str
    ours: Callable[[Bench], Command]
    theirs: Callable[[Bench, Peer], Command] | None = None
    measure: str = "wall"
    must: float | None = None
    aim: float | None = None
    peak_must: float | None = None
    peak_aim: float | None = None
    #: bytes that may be read, Python's own files with them
    read_must: float | None = None
    #: the draft whose bytes are copied with ``cat`` beside it
    copied: str | None = None
    note: str = ""


def console(name: str) -> Path:
    """A command of ours, installed beside this Python."""
    return Path(sys.executable).parent / name


def _conversion(
    draft: str, outtype: str, must: float | None, aim: float | None, *, default: bool = False, peer: bool = True
) -> Row:
    """The draft with its embedding and head (more than the peer writes), or as it is converted by ``default``."""
    embedded = draft == "D"

    def ours(bench: Bench) -> Command:
        made = bench.draft(draft)
        command: Command = [console("dspark-convert"), made.model, "--target-model-dir", made.target, "--force"]
        options = ["--outtype", outtype] + ([] if embedded or default else ["--shared-tensors", "include"])
        return [*command, "-o", bench.outfile, *options]

    def theirs(bench: Bench, peer: Peer) -> Command:
        made = bench.draft(draft)
        options = ["--outtype", outtype] + (["--dspark"] if embedded else [])
        return peer.convert(made.model, made.target, bench.peer_outfile, *options)

    return Row(
        f"{draft} {outtype}" + (", borrowing" if default else ""),
        ours,
        theirs if peer else None,
        must=must,
        aim=aim,
        peak_must=PEAK_MUST,
        peak_aim=PEAK_AIM,
        copied=draft,
    )


def _dumped_file(bench: Bench) -> Path:
    """A draft of 150,000 tokens as a file, made once."""
    path = bench.work / "tokens.gguf"
    if not path.is_file():
        made = bench.draft("q")
        command: Command = [console("dspark-convert"), made.model, "--target-model-dir", made.target, "--quiet"]
        subprocess.run([*command, "-o", path], check=True)
    return path


def _inspect(bench: Bench) -> Command:
    return [console("dspark-inspect"), _dumped_file(bench)]


def _dry_run(bench: Bench) -> Command:
    made = bench.draft("flash")
    return [console("dspark-convert"), made.model, "--target-model-dir", made.target, "--dry-run"]


def _option(option: str) -> Row:
    return Row(option, lambda _: [console("dspark-convert"), option], measure="cpu", must=0.5, aim=0.3)


ROWS = (
    _conversion("Q", "bf16", 8, 14),
    _conversion("Q", "f16", 5, 10),
    _conversion("Q", "f32", 2.5, 5),
    _conversion("Q", "q8_0", 3, 10),
    _conversion("Q", "bf16", None, None, default=True),
    _conversion("D", "auto", 8, 15),
    _conversion("q", "bf16", 12, 15),
    _conversion("q", "q8_0", None, None),
    _conversion("q", "q4_k", None, None, peer=False),
    _conversion("q", "bf16", None, None, default=True),
    Row(
        "inspect, 150,000 tokens",
        _inspect,
        lambda bench, peer: peer.dump(_dumped_file(bench)),
        measure="cpu",
        must=20,
        aim=40,
        peak_must=80e6,
        note="the peer is gguf-dump",
    ),
    _option("--help"),
    _option("--version"),
    Row(
        "--dry-run, 72,317 tensors",
        _dry_run,
        measure="cpu",
        must=2.0,
        # index, tokenizer, headers and modules; the weights are 10.9 GB
        read_must=50e6,
        note="DeepSeek-V4-Flash",
    ),
)


def free_bytes_needed(rows: tuple[Row, ...]) -> int:
    """What the inputs and the largest output of ``rows`` take at most; Q is 4.7 GB, as F32 9.5 GB."""
    names = {row.copied for row in rows} | {"flash"}
    inputs = sum(
        {"Q": 4_800_000_000, "q": 1_000_000_000, "D": 1_500_000_000}.get(name or "", 20_000_000) for name in names
    )
    return inputs + (9_600_000_000 if "Q" in names else 2_000_000_000)


def check_space(work: Path, rows: tuple[Row, ...]) -> None:
    """Raises SystemExit if ``work`` has too little space for ``rows``."""
    work.mkdir(parents=True, exist_ok=True)
    needed, free = free_bytes_needed(rows), shutil.disk_usage(work).free
    if free < needed:
        raise SystemExit(f"{work} has {free / 1e9:.1f} GB free, and these rows need up to {needed / 1e9:.1f} GB.")
