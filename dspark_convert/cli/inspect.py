"""dspark-inspect: what is this draft, and what is wrong with it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_convert.cli.output import Output
from dspark_convert.cli.runner import VersionFlag, run
from dspark_convert.cli.text import human_bytes, safe

if TYPE_CHECKING:
    from dspark_convert.inspection import Inspection


def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A draft GGUF, or a draft's checkpoint directory.")],
    tensors: Annotated[bool, typer.Option("--tensors", help="List the tensors too.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Read all values: look for NaN, infinity and zeros.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a finding is an error.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    version: VersionFlag = False,  # noqa: ARG001 - its callback prints and exits
) -> int:
    """Show what a DSpark draft means, what is wrong with it, and how to run it."""
    from dspark_convert.errors import UsageError
    from dspark_convert.inspection import inspect_directory, inspect_file

    out = Output(json=json, quiet=quiet)
    if not path.is_dir():
        with out.progress("reading", path.stat().st_size if deep and path.is_file() else 0) as advance:
            inspection = inspect_file(path, deep=deep, advance=advance)
    elif deep:
        raise UsageError("--deep reads the values of a GGUF; a checkpoint's are checked when it is converted.")
    else:
        inspection = inspect_directory(path)
    _show(out, inspection, tensors=tensors)
    out.json(inspection.to_json())
    return 1 if strict and inspection.errors else 0


def _show(out: Output, inspection: Inspection, *, tensors: bool) -> None:
    from dspark_convert.cli.describe import meaning_fields, run_command, value_text

    if out.json_wanted or out.quiet:
        out.findings(inspection.errors if out.quiet else (), result=True)
        return
    size = f"  {human_bytes(inspection.nbytes)}" if inspection.nbytes else ""
    out.human(f"{safe(str(inspection.path))}{size}", "")
    out.fields(meaning_fields(inspection))
    out.human("", "Run it with" if inspection.kind == "gguf" else "Convert it with", f"  {run_command(inspection)}")
    out.human("", "Findings" if inspection.findings else "Nothing wrong was found.")
    out.findings(inspection.findings, result=True)
    if inspection.metadata:
        out.human("", "Metadata")
        out.fields([(safe(key), value_text(value)) for key, value in inspection.metadata.items()])
    if tensors and inspection.tensors:
        out.human("", "Tensors")
        rows = [(row.name, row.type, " x ".join(map(str, row.shape)), f"{row.nbytes:,}") for row in inspection.tensors]
        out.table(["name", "type", "shape", "bytes"], rows, right="bytes")


def main() -> None:
    run(inspect, "dspark-inspect")
