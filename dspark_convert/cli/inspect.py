"""dspark-inspect: what is this draft, and what is wrong with it?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_convert.cli.output import Output
from dspark_convert.cli.runner import VersionFlag, run

if TYPE_CHECKING:
    from dspark_convert.inspection import Inspection
    from dspark_convert.pair.fit import Fit
    from dspark_convert.writing.hashes import Verdict


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|DIR|HUB-ID",
            help="A draft GGUF or checkpoint; HUB-ID: org/name[/folder|:file.gguf][@revision].",
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|DIR|HUB-ID", help="Does the draft fit this target? By headers alone; exit with 1 if not."
        ),
    ] = None,
    metadata: Annotated[bool, typer.Option("--metadata", help="List the key/values too.")] = False,
    tensors: Annotated[bool, typer.Option("--tensors", help="List the tensors too.")] = False,
    origins: Annotated[
        bool, typer.Option("--origins", help="List where each field of a checkpoint's meaning was found too.")
    ] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read all values: look for NaN, infinity and zeros, or compare them (--diff)."),
    ] = False,
    diff: Annotated[
        Path | None,
        typer.Option(
            metavar="OTHER", help="Compare with another draft, a GGUF or a directory; exit with 1 if it differs."
        ),
    ] = None,
    verify_hash: Annotated[
        bool, typer.Option("--verify-hash", help="Compare the file with FILE.sha256; exit with 1 if it differs.")
    ] = False,
    sha256: Annotated[
        str | None, typer.Option(metavar="HEX", help="Compare the file with this SHA-256; exit with 1 if it differs.")
    ] = None,
    ctx: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Positions, for the memory that is told (default: the draft's context length)."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a finding is an error or a warning.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the findings as SARIF 2.1.0; - prints them alone.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    version: VersionFlag = False,  # noqa: ARG001 - its callback prints and exits
) -> int:
    """Show what a DSpark draft means, what is wrong with it, and how to run it."""
    from dspark_convert.cli.sarif_file import SarifFile
    from dspark_convert.errors import UsageError

    alone = str(sarif) == "-"
    if alone and json:
        raise UsageError("--json and --sarif - would both be printed; give --sarif a file.")
    out = Output(json=json or alone, quiet=quiet)
    if diff is not None:
        from dspark_convert.cli.diff import inspect_diff

        others = {
            "--verify-hash": verify_hash,
            "--sha256": sha256 is not None,
            "--strict": strict,
            "--sarif": sarif is not None,
            "--metadata": metadata,
            "--origins": origins,
            "--ctx": ctx is not None,
        }
        if given := [name for name, is_given in others.items() if is_given]:
            raise UsageError(f"--diff compares two drafts and does nothing else: leave {' and '.join(given)} out.")
        return inspect_diff(out, path, diff, target, deep=deep, tensors=tensors)
    with SarifFile(sarif, path) as log:
        inspection, fit, verdicts = _look(out, path, target, deep=deep, verify_hash=verify_hash, sha256=sha256)
        inspection = replace(inspection, context=ctx)
        log.holds(inspection)
    if quiet or not out.json_wanted:
        from dspark_convert.cli.view import show

        show(out, inspection, fit, verdicts, metadata=metadata, origins=origins, tensors=tensors)
    hashes = {"hashes": [verdict.to_json() for verdict in verdicts]} if verdicts else {}
    pair = {"pair": fit.to_json()} if fit is not None else {}
    if not alone:
        out.json(inspection.to_json() | pair | hashes)
    wrong = not all(verdict.matches for verdict in verdicts) or (fit is not None and not fit.fits)
    told = any(finding.severity != "info" for finding in inspection.findings)
    return 1 if wrong or (strict and told) else 0


def _look(
    out: Output, path: Path, target: Path | None, *, deep: bool, verify_hash: bool, sha256: str | None
) -> tuple[Inspection, Fit | None, list[Verdict]]:
    from dspark_convert.errors import InputError, UsageError
    from dspark_convert.inspection import inspect_file
    from dspark_convert.pairing import inspect_elsewhere, pair_file
    from dspark_convert.remote import open_target
    from dspark_convert.source.hub_id import parse_hub_file

    named = parse_hub_file(path)
    hashed = verify_hash or sha256 is not None
    opened = None if target is None else open_target(target, out)
    if path.is_dir() or named is not None:
        if named is not None and (deep or hashed):
            raise UsageError(
                f"{path} is read by its header alone; for --deep and for hashes download it (hf download)."
            )
        if deep:
            raise UsageError("--deep reads the values of a GGUF; a checkpoint's are checked when it is converted.")
        if hashed:
            raise UsageError(f"{path} is a checkpoint; --verify-hash and --sha256 are for a GGUF.")
        return (*inspect_elsewhere(path, named, opened, out), [])
    verdicts = _compare(out, path, sha256) if hashed else []
    told = [verdict.finding for verdict in verdicts if not verdict.matches]
    beside = opened.path if opened is not None and opened.is_gguf else None
    try:
        with out.progress("reading", _size(path) if deep else 0) as advance:
            inspection = inspect_file(path, beside, deep=deep, advance=advance)
    except InputError as fault:
        raise InputError(str(fault), findings=(*told, *fault.findings)) from fault
    inspection, fit = pair_file(inspection, opened)
    return replace(inspection, findings=(*told, *inspection.findings)), fit, verdicts


def _compare(out: Output, path: Path, sha256: str | None) -> list[Verdict]:
    """The hash of the file, of a split set those of all its parts, beside what it should be."""
    from dspark_convert.errors import UsageError
    from dspark_convert.ggufio.split import named_set
    from dspark_convert.writing.hashes import parse_hash, verify

    paths = named_set(path)
    if sha256 is not None and len(paths) > 1:
        raise UsageError(f"{path} is one of {len(paths)} parts, and --sha256 is of one file; use --verify-hash.")
    expected = None if sha256 is None else parse_hash(sha256)
    with out.progress("hashing", _size(path)) as advance:
        return [verify(each, expected, advance) for each in paths]


def _size(path: Path) -> int:
    """Bytes of all files that are read for ``path``."""
    from dspark_convert.ggufio.split import named_set

    return sum(part.stat().st_size for part in named_set(path) if part.is_file())


def main() -> None:
    run(inspect, "dspark-inspect")


if __name__ == "__main__":
    main()
