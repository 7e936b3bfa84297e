"""What dspark-inspect shows of one draft: the meaning on a screen, then findings, then tables on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dspark_convert.cli.describe import meaning_fields, next_step, value_text
from dspark_convert.cli.findings_view import show_findings, tally
from dspark_convert.cli.output import Output
from dspark_convert.cli.text import human_bytes, safe
from dspark_convert.inspection import Inspection

if TYPE_CHECKING:
    from dspark_convert.pair.fit import Fit
    from dspark_convert.writing.hashes import Verdict

BOLD, GREEN = "1", "32"


def show(
    out: Output,
    inspection: Inspection,
    fit: Fit | None,
    verdicts: Sequence[Verdict],
    *,
    metadata: bool = False,
    origins: bool = False,
    tensors: bool = False,
) -> None:
    """With --quiet the errors alone, on stderr."""
    if out.quiet:
        out.findings(inspection.errors)
        return
    out.line(f"{safe(str(inspection.path))}{_size(inspection)}", BOLD)
    out.human("")
    fields = meaning_fields(inspection)
    fields += [("SHA-256", f"{verdict.found}, as it should be") for verdict in verdicts if verdict.matches]
    out.fields(fields)
    heading, line = next_step(inspection, fit.target if fit is not None else "")
    out.human("")
    out.line(heading, BOLD)
    out.human(f"  {line}", "")
    if fit is not None:
        from dspark_convert.cli.fit import show_fit

        show_fit(out, fit)
        out.human("")
    if inspection.findings:
        out.line(f"Findings: {tally(inspection.findings)}", BOLD)
        show_findings(out, inspection.findings)
    else:
        out.line("Nothing wrong was found.", GREEN)
    if metadata:
        _head(out, "Metadata")
        out.fields([(safe(key), value_text(value)) for key, value in inspection.metadata.items()])
    if origins:
        _head(out, "Origins")
        origin = inspection.draft.origin if inspection.draft is not None else {}
        out.fields(list(origin.items()))
        if not origin:
            out.human("Every field is a key of the file or follows from its tensors: --metadata, --tensors.")
    if tensors:
        _head(out, "Tensors")
        rows = [(row.name, row.type, " x ".join(map(str, row.shape)), f"{row.nbytes:,}") for row in inspection.tensors]
        out.table(["name", "type", "shape", "bytes"], rows, right="bytes")


def _head(out: Output, text: str) -> None:
    out.human("")
    out.line(text, BOLD)


def _size(inspection: Inspection) -> str:
    whole, read = inspection.container.get("whole"), inspection.container.get("read")
    if whole is not None:
        return f"  {inspection.nbytes:,} of {whole:,} bytes are here"
    if read is not None:
        return f"  {human_bytes(inspection.nbytes)}, of which {human_bytes(read)} were read"
    return f"  {human_bytes(inspection.nbytes)}" if inspection.nbytes else ""
