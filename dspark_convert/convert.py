"""A conversion from its arguments to a file: plan, refuse or write."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_convert.errors import UsageError
from dspark_convert.ggufio.types import GGUF_MAGIC
from dspark_convert.options import Options
from dspark_convert.pair.llama import spec_type
from dspark_convert.plan import Plan, plan_for_directory, refuse, require_known
from dspark_convert.remote import Silent, local_target, plan_for_survey, survey_model
from dspark_convert.source.checkpoint import read_config, require_directory
from dspark_convert.specs.match import holds_target
from dspark_convert.target import Target, open_target_directory, open_target_gguf
from dspark_convert.writing.output import check_output

if TYPE_CHECKING:
    from dspark_convert.source.hub import Sink, Survey
    from dspark_convert.writing.writer import Hashing, Written

#: of the target's name in the default file name; file systems allow 255 bytes in all
MAX_NAME_BYTES = 100


@dataclass(frozen=True)
class Request:
    """What to convert and where to. ``outfile`` None or a directory means the default name.

    ``model`` and ``target_dir`` may spell hub ids (``source.hub_id``).
    """

    model: Path
    target_dir: Path | None
    target_gguf: Path | None
    outfile: Path | None
    options: Options
    force: bool = False
    strict: bool = False
    split_max_size: int | None = None


@dataclass(frozen=True)
class Prepared:
    """A plan without errors and the path that it will be written to (None if there is no target).

    ``inputs`` are the files that the output must not replace; ``model`` is where the checkpoint lies on
    the disk; ``survey`` tells what of it came, or would come, from the hub; ``is_port``: it is a GGUF.
    """

    plan: Plan
    path: Path | None
    model: Path
    inputs: tuple[Path, ...] = ()
    survey: Survey | None = None
    is_port: bool = False


def prepare(request: Request, *, dry_run: bool = False, sink: Sink | None = None) -> Prepared:
    """Plan the conversion and check everything that can be checked before writing.

    A model on the hub is planned from its headers, then fetched, which ``sink`` is told (not with ``dry_run``).

    Raises UsageError, InputError (with all findings) or EnvironmentFault; nothing was written then.
    """
    sink = sink or Silent()
    if is_gguf(request.model):
        return _prepare_port(request, dry_run=dry_run, sink=sink)
    survey = survey_model(request.model, sink, request.options.shared_tensors)
    if survey is None:
        require_directory(request.model, "the draft")  # before a target is asked for: a mistyped name needs none
    if request.target_dir is None and request.target_gguf is None and is_in_target(request.model, survey):
        request = replace(request, target_dir=request.model)
    _require_named_tokenizer(request)
    if request.target_dir is None and request.target_gguf is None and not dry_run:
        if survey is None:
            require_known(request.model)  # to what is no draft a target would be no help
        raise UsageError(
            "the draft has no tokenizer of its own: give its target with --target-model-dir DIR or --target-gguf FILE."
        )
    taken = _check_named(request, dry_run=dry_run)
    request = replace(request, target_dir=local_target(request.target_dir, sink))
    target = open_target(request)
    if survey is None:
        plan = plan_for_directory(request.model, target, request.options)
    else:
        plan = plan_for_survey(survey, target, request.options, rows=None if dry_run else sink)
    refuse(plan, strict=request.strict)
    path = _outfile(request, plan, target.provenance.name if target else None)
    if survey is not None and not dry_run:
        if path is not None:
            check_output(path, [], taken)
        request = replace(request, model=_fetched(survey, sink))
        plan = plan_for_survey(survey, target, request.options, root=request.model, rows=sink)
        refuse(plan, strict=request.strict)
    inputs = _inputs(request)
    if path is not None and not dry_run:
        check_output(path, inputs, taken)
    return Prepared(plan, path, request.model, tuple(inputs), survey)


def _prepare_port(request: Request, *, dry_run: bool, sink: Sink) -> Prepared:
    """As ``prepare``, of a draft that is a GGUF already."""
    from dspark_convert.port.planning import plan_for_gguf, target_name

    _require_named_tokenizer(request)
    taken = _check_named(request, dry_run=dry_run)
    request = replace(request, target_dir=local_target(request.target_dir, sink))
    target = open_target(request)
    plan = plan_for_gguf(request.model, target, request.options)
    refuse(plan, strict=request.strict)
    path = _outfile(request, plan, target.provenance.name if target else target_name(plan))
    inputs = _inputs(request)
    if path is not None and not dry_run:
        check_output(path, inputs, taken)
    return Prepared(plan, path, request.model, tuple(inputs), is_port=True)


def is_gguf(model: Path) -> bool:
    """Whether the draft is a file to port, and no checkpoint."""
    if not model.is_file() or model.suffix == ".gguf":
        return model.is_file()
    try:
        with model.open("rb") as stream:
            return stream.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:  # which is told as of any file that is no directory
        return False


def _require_named_tokenizer(request: Request) -> None:
    if request.options.tokenizer_pre is not None and request.target_dir is None:
        raise UsageError("--tokenizer-pre names the pre-tokenizer of --target-model-dir; a GGUF brings its own name.")


def _check_named(request: Request, *, dry_run: bool) -> bool:
    """Look at an output that the user named, before any work; whether a name that is taken may be used."""
    # Of a split output other names are taken, which writing looks at when it knows how many there are.
    taken = request.force or request.split_max_size is not None
    if request.outfile is not None and not _is_directory(request.outfile) and not dry_run:
        check_output(request.outfile, [], taken)
    return taken


def is_in_target(model: Path, survey: Survey | None) -> bool:
    """Whether the checkpoint is the target's own, the draft's tensors among its, and has the tokenizer."""
    if survey is not None:
        return "tokenizer.json" in survey.repository.files and holds_target(survey.config)
    if not (model / "tokenizer.json").is_file() or not (model / "config.json").is_file():
        return False
    return holds_target(read_config(model, "the draft"))


def _fetched(survey: Survey, sink: Sink) -> Path:
    from dspark_convert.source.hub import materialise

    sink.note(f"{survey}")
    return materialise(survey, sink)


def _inputs(request: Request) -> list[Path]:
    """What the output may not replace: every file of both models but GGUFs in their directories, which lie there as
    earlier outputs."""
    directories = [directory for directory in (request.model, request.target_dir) if directory and directory.is_dir()]
    files = [path for directory in directories for path in directory.iterdir() if path.suffix != ".gguf"]
    return files + [path for path in (request.target_gguf, request.model) if path and path.is_file()]


def _is_directory(path: Path) -> bool:
    # Path.is_dir() raises for a name that is too long; check_output says so in words.
    return os.path.isdir(path)  # noqa: PTH112


def output_path(text: str | None) -> Path | None:
    """The path that the user wrote; UsageError for "" and for "name/" where there is no such directory."""
    if text is None:
        return None
    path = Path(text)
    if not text or (text.endswith("/") and not path.is_dir()):
        raise UsageError(f"the output {text!r} is no directory; create it first, or name a file.")
    return path


def open_target(request: Request) -> Target | None:
    """The target that tokenizer and pair checks use: the directory if there is one, else the GGUF."""
    if request.target_dir is not None:
        return open_target_directory(request.target_dir)
    return open_target_gguf(request.target_gguf) if request.target_gguf is not None else None


def write(
    prepared: Prepared,
    request: Request,
    *,
    threads: int | None = None,
    library: Path | None = None,
    hashing: Hashing | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write what was prepared for ``request``; raises as ``writing.writer.write`` does."""
    from dspark_convert.writing.writer import Hashing
    from dspark_convert.writing.writer import write as write_gguf

    assert prepared.path is not None  # noqa: S101 - prepare() without dry_run always sets it
    return write_gguf(
        prepared.path,
        prepared.plan.metadata,
        prepared.plan.tensors,
        force=request.force,
        strict=request.strict,
        threads=threads,
        library=library,
        hashing=hashing or Hashing(),
        split_max_size=request.split_max_size,
        measure=prepared.is_port,
        keep=prepared.inputs,
        progress=progress,
    )


def default_name(plan: Plan, target: str) -> str:
    """``dspark-<Target>-<TYPE>.gguf``, or ``dflash-``: llama.cpp finds drafts by these prefixes."""
    # The name comes out of a file or a stranger's directory: nothing of it may be a path.
    name = re.sub(r"[^\w.+-]+", "-", target).strip("-.") or "target"
    kind = spec_type(plan.draft.kind if plan.draft else "dspark").removeprefix("draft-")
    short = name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return f"{kind}-{short}-{plan.label}.gguf"


def _outfile(request: Request, plan: Plan, target: str | None) -> Path | None:
    if request.outfile is not None and not _is_directory(request.outfile):
        return request.outfile
    if target is None:
        return None
    return (request.outfile or Path()) / default_name(plan, target)
