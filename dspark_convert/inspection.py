"""One view of a draft, whether it is a GGUF or still a checkpoint: meaning, contents, findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dspark_convert.draft import Draft
from dspark_convert.errors import InputError
from dspark_convert.findings import Finding
from dspark_convert.memory import Memory, estimate

if TYPE_CHECKING:
    from dspark_convert.ggufio.reader import GGUFFile
    from dspark_convert.plan import Plan
    from dspark_convert.source.hub import Sink
    from dspark_convert.source.hub_repo import Repository


@dataclass(frozen=True)
class TensorRow:
    """``type`` is ggml's name, ``shape`` in ggml order, ``nbytes`` 0 if the type is unknown."""

    name: str
    type: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Inspection:
    """``draft`` is None where the meaning could not be read; ``findings`` then say why.

    ``nbytes`` is the file's size, for a checkpoint that of the tensors it would be written with.
    ``container`` tells of a GGUF its version, byte order and alignment; ``whole``: bytes that it should
    have, where it has fewer; ``read``: bytes that were fetched, where it lies on the hub.
    ``in_target``: the checkpoint is the target's own, the draft's tensors among its.
    """

    path: Path
    kind: Literal["gguf", "checkpoint"]
    nbytes: int
    container: dict[str, Any]
    dialect: str
    draft: Draft | None
    metadata: Mapping[str, Any]
    tensors: tuple[TensorRow, ...]
    findings: tuple[Finding, ...]
    context: int | None = None
    in_target: bool = False

    @property
    def memory(self) -> Memory | None:
        """What the draft takes at ``context`` positions; None where that is not known."""
        if self.draft is None or not self.tensors:
            return None
        return estimate(self.draft, ((row.type, row.nbytes) for row in self.tensors), self.context)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def to_json(self) -> dict[str, Any]:
        """The document of ``dspark-inspect --json`` (schemas/inspect-1.json)."""
        return {
            "schema": "dspark-inspect/1",
            "file": {"path": str(self.path), "kind": self.kind, "bytes": self.nbytes, **self.container},
            "dialect": self.dialect,
            "draft": self.draft.to_json() if self.draft else None,
            "metadata": self.metadata,
            "tensors": [
                {"name": row.name, "type": row.type, "shape": list(row.shape), "bytes": row.nbytes}
                for row in self.tensors
            ],
            "findings": [finding.to_json() for finding in self.findings],
            "memory": memory.to_json() if (memory := self.memory) else None,
        }


def inspect_file(
    path: Path,
    target: Path | None = None,
    *,
    deep: bool = False,
    advance: Callable[[int], None] = lambda _bytes: None,
) -> Inspection:
    """Inspect a GGUF; it stays mapped for as long as the result's ``metadata`` is held.

    ``target`` is the GGUF of its target, for layouts that leave sizes to it. ``deep`` also reads all
    values; ``advance`` is told the bytes. Raises InputError if a file cannot be read or is no draft.
    """
    from dspark_convert.ggufio.reader import open_gguf

    file = open_gguf(path)
    if target is None:
        return _of_file(file, deep=deep, advance=advance)
    with open_gguf(target) as beside:
        return _of_file(file, beside, deep=deep, advance=advance)


def inspect_hub_file(repository: Repository, name: str, sink: Sink, target: Path | None = None) -> Inspection:
    """Inspect a GGUF on the hub by its first megabytes; ``target`` and what is raised as in ``inspect_file``, and
    as in ``fetch_gguf``."""
    from dspark_convert.ggufio.reader import open_gguf
    from dspark_convert.ggufio.remote import fetch_gguf

    fetched = fetch_gguf(repository, name, sink.note)
    spelled = repository.id.file(name)
    try:
        file = open_gguf(fetched.path, fetched.sizes)
        if target is None:
            inspection = _of_file(file)
        else:
            with open_gguf(target) as beside:
                inspection = _of_file(file, beside)
    except InputError as fault:  # where it lies here says nothing to anyone
        raise InputError(str(fault).replace(str(fetched.path), spelled), findings=fault.findings) from None
    return replace(inspection, path=Path(spelled), container=inspection.container | {"read": fetched.read})


def _of_file(
    file: GGUFFile,
    target: GGUFFile | None = None,
    *,
    deep: bool = False,
    advance: Callable[[int], None] = lambda _bytes: None,
) -> Inspection:
    from dspark_convert.ggufio.dialects import read_draft
    from dspark_convert.lint import lint

    reading = read_draft(file, target)
    end = max((tensor.offset + tensor.nbytes for tensor in file.tensors if not tensor.part), default=0)
    cut = {"whole": end} if end > file.size else {}
    return Inspection(
        path=file.path,
        kind="gguf",
        nbytes=file.size,
        container={"version": file.version, "byte_order": file.byte_order, "alignment": file.alignment, **cut},
        dialect=reading.dialect,
        draft=reading.draft,
        metadata=file.metadata,
        tensors=tuple(TensorRow(t.name, t.type_name, t.shape, t.nbytes) for t in file.tensors),
        findings=lint(file, reading, deep=deep, advance=advance),
    )


def inspect_directory(path: Path) -> Inspection:
    """Inspect a checkpoint: the plan of its conversion without a target (so without a tokenizer).

    Raises UsageError or InputError if it holds no draft that can be planned.
    """
    from dspark_convert.plan import plan_for_directory

    return inspect_plan(path, plan_for_directory(path))


def inspect_plan(path: Path, plan: Plan) -> Inspection:
    """A checkpoint as its plan sees it."""
    return Inspection(
        path=path,
        kind="checkpoint",
        nbytes=sum(job.nbytes for job in plan.tensors),
        container={},
        dialect=plan.dialect,
        draft=plan.draft,
        metadata={kv.key: kv.value for kv in plan.metadata},
        tensors=tuple(TensorRow(job.name, job.type.name, job.shape, job.nbytes) for job in plan.tensors),
        findings=plan.findings,
    )
