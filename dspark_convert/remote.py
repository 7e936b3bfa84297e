"""Models on the hub, for the commands: planned from their headers, fetched only where they are converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_convert.errors import InputError
from dspark_convert.findings import info
from dspark_convert.options import Options, SharedTensors
from dspark_convert.plan import Plan, plan_for_checkpoint
from dspark_convert.source.hub_id import HubId, parse_hub_file, parse_hub_id
from dspark_convert.specs.match import choose_tensors, needed_tensors, shared_tensors
from dspark_convert.target import Target, open_target_directory, open_target_gguf

if TYPE_CHECKING:
    from dspark_convert.source.hub import Sink, Survey
    from dspark_convert.source.hub_repo import Repository


class Silent:
    """A sink that tells nothing."""

    def note(self, text: str) -> None:
        pass

    @contextmanager
    def progress(self, _label: str, _total: int) -> Iterator[Callable[[int], None]]:
        yield lambda _done: None


def survey_model(model: Path, sink: Sink, shared: SharedTensors) -> Survey | None:
    """What a conversion needs of the repository that ``model`` names; None if it names none.

    Raises as ``source.hub.survey_at`` does.
    """
    hub_id = parse_hub_id(model)
    if hub_id is None:
        return None
    from dspark_convert.source.hub_repo import resolve

    return survey_repository(resolve(hub_id, sink.note), sink, shared)


def survey_repository(repository: Repository, sink: Sink, shared: SharedTensors = "omit") -> Survey:
    """What a conversion with ``shared`` needs of a repository; raises as ``source.hub.survey_at`` does."""
    from dspark_convert.source.hub import survey_at

    return survey_at(repository, needed_tensors, sink, shared_tensors, leave_tables=shared == "omit")


def find_gguf(hub_id: HubId, file: str | None, sink: Sink, *, target: bool = False) -> tuple[Repository, str | None]:
    """The repository at its commit, and which of its GGUFs is meant; None where it is a checkpoint that is.

    ``target``: config and tokenizer make a checkpoint, without weights. Raises as ``resolve`` and ``choose_gguf`` do.
    """
    from dspark_convert.source.hub_gguf import choose_gguf, gguf_files
    from dspark_convert.source.hub_repo import resolve
    from dspark_convert.tokenizer.files import READ

    repository = resolve(hub_id, sink.note)
    names = repository.files
    checkpoint = any(name.endswith(".safetensors") and "/" not in name for name in names)
    if target:
        checkpoint = "config.json" in names and (checkpoint or any(name in names for name in READ))
    if file is None and (checkpoint or not gguf_files(repository)):
        return repository, None
    return repository, choose_gguf(repository, file)


def open_target(path: Path, sink: Sink) -> Target:
    """The target that ``path`` names: a directory, a GGUF, or either on the hub, of which only headers are read.

    Raises UsageError, InputError or EnvironmentFault with one sentence about what is wrong.
    """
    named = parse_hub_file(path)
    if named is None:
        return open_target_directory(path) if path.is_dir() else open_target_gguf(path)
    repository, file = find_gguf(*named, sink, target=True)
    if file is None:
        from dspark_convert.source.hub import fetch_target_at

        return replace(open_target_directory(fetch_target_at(repository, sink)), label=str(path))
    from dspark_convert.ggufio.remote import fetch_gguf

    fetched = fetch_gguf(repository, file, sink.note)
    try:
        return replace(open_target_gguf(fetched.path, fetched.sizes), label=str(path))
    except InputError as fault:  # where it lies here says nothing to anyone
        raise InputError(str(fault).replace(str(fetched.path), str(path)), findings=fault.findings) from None


def local_target(directory: Path | None, sink: Sink) -> Path | None:
    """``directory``, or where config and tokenizer lie now if it names a repository."""
    hub_id = None if directory is None else parse_hub_id(directory)
    if hub_id is None:
        return directory
    from dspark_convert.source.hub import fetch_target

    return fetch_target(hub_id, sink)


def local_reference(directory: Path | None, draft: Path, sink: Sink) -> Path | None:
    """``directory``, or where the draft's checkpoint lies now if it names a repository.

    Of its embeddings and head those come with it that the file ``draft`` holds: the others are the target's.
    """
    if directory is None or parse_hub_id(directory) is None:
        return directory
    from dspark_convert.ggufio.reader import open_gguf
    from dspark_convert.source.hub import materialise

    with open_gguf(draft) as file:
        holds_tables = any(file.tensor(name) is not None for name in ("token_embd.weight", "output.weight"))
    survey = survey_model(directory, sink, "include" if holds_tables else "omit")
    assert survey is not None  # noqa: S101 - it is a hub id
    sink.note(f"{survey}")
    return materialise(survey, sink)


def plan_for_survey(
    survey: Survey,
    target: Target | None = None,
    options: Options | None = None,
    *,
    root: Path | None = None,
    rows: Sink | None = None,
) -> Plan:
    """The plan of a conversion before its tensors are fetched, and the finding that says how much that is.

    ``root``: where they are, once they were fetched. ``rows``: told of the fetching of a few rows of
    tables that are left on the hub, to compare them with the target's; None: none are.
    """
    from dspark_convert.source.hub import open_survey

    plan = plan_for_checkpoint(open_survey(survey, choose_tensors, root, rows), target, options)
    if root is not None:
        return plan
    told = info("hub-fetch", survey.repository.id.place, f"{survey}.")
    return replace(plan, findings=(told, *plan.findings))
