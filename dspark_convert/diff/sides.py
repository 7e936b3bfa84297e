"""The two sides of a diff: a GGUF, or a checkpoint as a conversion would write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dspark_convert.draft import Draft
from dspark_convert.errors import InputError, UsageError
from dspark_convert.findings import Finding
from dspark_convert.ggufio.types import KV, GGMLType
from dspark_convert.options import Options
from dspark_convert.shared import TABLES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dspark_convert.ggufio.dialects import Reading
    from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
    from dspark_convert.jobs import TensorJob

Advance = Callable[[int], None]

#: keys that come from a target
OF_TARGET = ("tokenizer.", "general.base_model.", "dspark.target.")
OF_TARGET_ENDS = (".rope.dimension_sections",)
#: the one of them that it has: the draft's own
OF_DRAFT = "tokenizer.ggml.mask_token_id"


@dataclass(frozen=True)
class SideTensor:
    """``type`` is ggml's name and ``kind`` its number; ``shape`` in ggml order.

    ``stored`` is the file's tensor, or the job that would write it.
    """

    name: str
    type: str
    kind: GGMLType | int
    shape: tuple[int, ...]
    nbytes: int
    stored: GGUFTensor | TensorJob


@dataclass(frozen=True)
class Side:
    """``draft`` is None where the meaning could not be read; ``findings`` then say why.

    ``metadata`` and ``tensors`` are in the words of the side's own layout if the other side has the same one, else
    both are in mainline's. ``file`` is None for a checkpoint. ``has_vocabulary``: its layout has the
    target's tokenizer in the file; a checkpoint, planned without a target, has none.
    """

    path: Path
    kind: Literal["gguf", "checkpoint"]
    dialect: str
    draft: Draft | None
    metadata: Mapping[str, Any]
    tensors: tuple[SideTensor, ...]
    findings: tuple[Finding, ...]
    file: GGUFFile | None = None
    has_vocabulary: bool = False
    kvs: Mapping[str, KV] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What keeps it from being read whole or run; that its layout is another program's does not count."""
        of_layout = ["legacy-layout"] if self.has_vocabulary else ["legacy-layout", "vocabulary-missing"]
        return tuple(f for f in self.findings if f.severity == "error" and f.rule not in of_layout)

    def value_type(self, key: str) -> str:
        """The value's type as the file has it: "UINT32", "[STRING]"."""
        if self.file is not None:
            entry = self.file.metadata.entries[key]
            return f"[{entry.array.item_type.name}]" if entry.array else entry.type.name
        kv = self.kvs[key]
        return f"[{kv.item_type.name}]" if kv.item_type is not None else kv.type.name

    def values(self, tensor: SideTensor, advance: Advance) -> Iterator[NDArray[np.floating[Any]]]:
        """The numbers of ``tensor``, row-major, in blocks; of a checkpoint as a conversion to F32 has them.

        ``advance`` is told the bytes of the tensor as they are read. Raises InputError for what cannot be read.
        """
        from dspark_convert.diff.reading import from_file, from_job

        if self.file is not None:
            return from_file(self.file, tensor, advance)
        return from_job(tensor, advance)


def of_target(key: str) -> bool:
    """Whether a checkpoint that is planned without its target lacks ``key``."""
    return key != OF_DRAFT and (key.startswith(OF_TARGET) or key.endswith(OF_TARGET_ENDS))


def open_sides(a: Path, b: Path, target: Path | None = None) -> tuple[Side, Side]:
    """Both sides of ``a`` against ``b``, each a GGUF or a checkpoint's directory; ``target`` is the GGUF of their
    target, for layouts that leave sizes to it and drafts that are written with its tables.

    A checkpoint is planned in mainline's layout, with the tables of the file beside it. The files stay mapped for as
    long as the result is held. Raises UsageError if both are the same, and as
    ``reader.open_gguf``, ``dialects.read_draft`` and ``plan.plan_for_directory`` do.
    """
    if a.exists() and b.exists() and a.samefile(b):
        raise UsageError(f"{b} is {a} itself: give another file or checkpoint with --diff.")
    read = {path: _read(path, target) for path in (a, b) if not path.is_dir()}
    options = _options(next(iter(read.values()), None))
    dialects = [read[path][1].dialect if path in read else options.dialect for path in (a, b)]
    alike = dialects[0] == dialects[1]
    first, second = (
        _of_file(path, *read[path], alike=alike) if path in read else _of_directory(path, options, target)
        for path in (a, b)
    )
    return first, second


def _read(path: Path, target: Path | None) -> tuple[GGUFFile, Reading]:
    from dspark_convert.ggufio.dialects import read_draft
    from dspark_convert.ggufio.reader import open_gguf

    file = open_gguf(path)
    if target is None:
        return file, read_draft(file)
    with open_gguf(target) as beside:
        return file, read_draft(file, beside)


def _of_file(path: Path, file: GGUFFile, reading: Reading, *, alike: bool) -> Side:
    from dspark_convert.lint import lint

    seen = reading.view.source if alike else reading.view.file
    return Side(
        path=path,
        kind="gguf",
        dialect=reading.dialect,
        draft=reading.draft,
        metadata=seen.metadata,
        tensors=tuple(SideTensor(t.name, t.type_name, t.type, t.shape, t.nbytes, t) for t in seen.tensors),
        findings=lint(file, reading),
        file=seen,
        has_vocabulary=reading.view.layout.expresses.vocabulary != "none",
    )


def _options(beside: tuple[GGUFFile, Reading] | None) -> Options:
    """How to plan a checkpoint: with tables of its own if the file ``beside`` it has some."""
    if beside is None:
        return Options()
    held = beside[1].view.file
    own = all(held.tensor(name) is not None for name in TABLES)
    return Options(shared_tensors="include" if own else "omit")


def _of_directory(path: Path, options: Options, target: Path | None) -> Side:
    from dspark_convert.plan import plan_for_directory
    from dspark_convert.target import open_target_gguf

    plan = plan_for_directory(path, options=options)
    if target is not None and any(finding.rule == "mask-embedding-target" for finding in plan.errors):
        plan = plan_for_directory(path, open_target_gguf(target), options)
    if plan.errors and options.shared_tensors == "include":
        plan = plan_for_directory(path, options=replace(options, shared_tensors="omit"))
    if plan.errors:
        things = "1 problem" if len(plan.errors) == 1 else f"{len(plan.errors)} problems"
        raise InputError(
            f"{path} cannot be compared, for it cannot be converted: {things} found.", findings=plan.findings
        )
    kvs = {kv.key: kv for kv in plan.metadata if not of_target(kv.key)}
    return Side(
        path=path,
        kind="checkpoint",
        dialect=plan.dialect,
        draft=plan.draft,
        metadata={key: kv.value for key, kv in kvs.items()},
        tensors=tuple(SideTensor(j.name, j.type.name, j.type, j.shape, j.nbytes, j) for j in plan.tensors),
        findings=plan.findings,
        kvs=kvs,
    )
