"""dspark-inspect: what is this draft, and what is wrong with it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_convert.cli.output import Output
from dspark_convert.cli.runner import VersionFlag, run
from dspark_convert.cli.text import human_bytes, safe

if TYPE_CHECKING:
    from dspark_convert.fit import Fit
    from dspark_convert.ggufio.hashes import Verdict
    from dspark_convert.inspection import Inspection


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|DIR|HUB-ID", help="A draft GGUF or checkpoint; HUB-ID: org/name[:file.gguf][@revision]."
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|DIR|HUB-ID", help="Does the draft fit this target? By headers alone; exit with 1 if not."
        ),
    ] = None,
    tensors: Annotated[bool, typer.Option("--tensors", help="List the tensors too.")] = False,
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
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a finding is an error.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    version: VersionFlag = False,  # noqa: ARG001 - its callback prints and exits
) -> int:
    """Show what a DSpark draft means, what is wrong with it, and how to run it."""
    from dspark_convert.errors import InputError, UsageError
    from dspark_convert.inspection import inspect_file
    from dspark_convert.pairing import inspect_elsewhere, pair_file
    from dspark_convert.remote import open_target
    from dspark_convert.source.hub_id import parse_hub_file

    out = Output(json=json, quiet=quiet)
    if diff is not None:
        from dspark_convert.cli.diff import inspect_diff

        if verify_hash or sha256 is not None or strict or target is not None:
            raise UsageError(
                "--diff compares two drafts and does nothing else: leave --verify-hash, --sha256, --strict and"
                " --target out."
            )
        return inspect_diff(out, path, diff, deep=deep, tensors=tensors)
    verdicts: list[Verdict] = []
    named = parse_hub_file(path)
    opened = None if target is None else open_target(target, out)
    if not path.is_dir() and named is None:
        if verify_hash or sha256 is not None:
            verdicts = _compare(out, path, sha256)
        told = [verdict.finding for verdict in verdicts if not verdict.matches]
        try:
            with out.progress("reading", _size(path) if deep else 0) as advance:
                inspection = inspect_file(path, deep=deep, advance=advance)
        except InputError as fault:
            raise InputError(str(fault), findings=(*told, *fault.findings)) from fault
        inspection, fit = pair_file(replace(inspection, findings=(*told, *inspection.findings)), opened)
    elif named is not None and (deep or verify_hash or sha256 is not None):
        raise UsageError(f"{path} is read by its header alone; for --deep and for hashes download it (hf download).")
    elif deep:
        raise UsageError("--deep reads the values of a GGUF; a checkpoint's are checked when it is converted.")
    elif verify_hash or sha256 is not None:
        raise UsageError(f"{path} is a checkpoint; --verify-hash and --sha256 are for a GGUF.")
    else:
        inspection, fit = inspect_elsewhere(path, named, opened, out)
    _show(out, inspection, fit, verdicts, tensors=tensors)
    hashes = {"hashes": [verdict.to_json() for verdict in verdicts]} if verdicts else {}
    pair = {"pair": fit.to_json()} if fit is not None else {}
    out.json(inspection.to_json() | pair | hashes)
    wrong = not all(verdict.matches for verdict in verdicts) or (fit is not None and not fit.fits)
    return 1 if wrong or (strict and inspection.errors) else 0


def _compare(out: Output, path: Path, sha256: str | None) -> list[Verdict]:
    """The hash of the file, of a split set those of all its parts, beside what it should be."""
    from dspark_convert.errors import UsageError
    from dspark_convert.ggufio.hashes import parse_hash, verify
    from dspark_convert.ggufio.split import named_set

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


def _show(out: Output, inspection: Inspection, fit: Fit | None, verdicts: Sequence[Verdict], *, tensors: bool) -> None:
    from dspark_convert.cli.describe import meaning_fields, run_command, value_text
    from dspark_convert.cli.fit import show_fit

    if out.json_wanted or out.quiet:
        out.findings(inspection.errors if out.quiet else (), result=True)
        return
    out.human(f"{safe(str(inspection.path))}{_size_text(inspection)}", "")
    fields = meaning_fields(inspection)
    fields += [("SHA-256", f"{verdict.found}, as it should be") for verdict in verdicts if verdict.matches]
    out.fields(fields)
    out.human("", "Run it with" if inspection.kind == "gguf" else "Convert it with", f"  {run_command(inspection)}")
    if fit is not None:
        show_fit(out, fit)
    out.human("", "Findings" if inspection.findings else "Nothing wrong was found.")
    out.findings(inspection.findings, result=True)
    if inspection.metadata:
        out.human("", "Metadata")
        out.fields([(safe(key), value_text(value)) for key, value in inspection.metadata.items()])
    if tensors and inspection.tensors:
        out.human("", "Tensors")
        rows = [(row.name, row.type, " x ".join(map(str, row.shape)), f"{row.nbytes:,}") for row in inspection.tensors]
        out.table(["name", "type", "shape", "bytes"], rows, right="bytes")


def _size_text(inspection: Inspection) -> str:
    whole, read = inspection.container.get("whole"), inspection.container.get("read")
    if whole is not None:
        return f"  {inspection.nbytes:,} of {whole:,} bytes are here"
    if read is not None:
        return f"  {human_bytes(inspection.nbytes)}, of which {human_bytes(read)} were read"
    return f"  {human_bytes(inspection.nbytes)}" if inspection.nbytes else ""


def main() -> None:
    run(inspect, "dspark-inspect")
