"""A planned file read back: it has to mean what was planned, and to be one that its llama.cpp loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.rotation import FREQUENCIES
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.lint.scales import SUFFIXES

if TYPE_CHECKING:
    from dspark_convert.ggufio.reader import GGUFFile
    from dspark_convert.plan import Plan

#: type and names of numbers that rules look at; no other tensor's bytes are needed
READ_TYPE, READ_NAMES = GGMLType.I64, (*SUFFIXES, FREQUENCIES)

#: what is said of the planned file that its path alone decides, or that its maker has chosen
NOT_ASKED = ("file-name", "early-layout", "legacy-layout")

#: and where the layout leaves the vocabulary to the target
OF_THE_VOCABULARY = ("vocabulary-missing",)


def read_back(plan: Plan, target: GGUFFile | None = None) -> list[Finding]:
    """Errors and warnings about the file that ``plan`` would write, from its header and no more.

    ``target``: the target's open GGUF, for layouts that leave sizes to it.
    """
    from dspark_convert.ggufio.dialects import read_draft
    from dspark_convert.ggufio.reader import open_gguf
    from dspark_convert.lint import lint

    with TemporaryDirectory(prefix="dspark-") as directory:
        path = Path(directory) / "planned.gguf"
        _write_header(path, plan)
        with open_gguf(path) as file:
            reading = read_draft(file, target)
            left_out = OF_THE_VOCABULARY if reading.view.layout.expresses.vocabulary == "none" else ()
            unasked = (*NOT_ASKED, *left_out)
            found = [f for f in lint(file, reading) if f.severity != "info" and f.rule not in unasked]
    if reading.draft is not None and plan.draft is not None:
        found += _changed(plan.draft, reading.draft)
    return found


def _write_header(path: Path, plan: Plan) -> None:
    """The file with holes for its tensors, which take no room."""
    from dspark_convert.ggufio.split import lay_out
    from dspark_convert.source.safetensors_header import read_bytes

    (part,) = lay_out(path, plan.metadata, plan.tensors)
    with path.open("wb") as stream:
        stream.write(part.header)
        stream.truncate(part.nbytes)
        for job, offset in zip(part.jobs, part.offsets, strict=True):
            looked_at = job.type is READ_TYPE or job.name.endswith(READ_NAMES)
            if looked_at and job.source is not None and job.source.nbytes == job.nbytes:
                stream.seek(offset)
                stream.write(read_bytes(job.source))


def _changed(planned: Draft, read: Draft) -> Iterator[Finding]:
    """What the new file would say otherwise than the old one means."""
    for field in fields(Draft):
        if field.compare and getattr(planned, field.name) != getattr(read, field.name):
            before, after = getattr(planned, field.name), getattr(read, field.name)
            message = f"the layout cannot say that it is {before!r}: the file would mean {after!r}."
            yield error("port-changes-meaning", field.name, message, "use --dialect dflash")
