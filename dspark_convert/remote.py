"""Models on the hub, for the commands: planned from their headers, fetched only where they are converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dspark_convert.findings import info
from dspark_convert.options import Options
from dspark_convert.plan import Plan, plan_for_checkpoint
from dspark_convert.source.hub_id import HubId, parse_hub_id
from dspark_convert.specs import choose_tensors, needed_tensors
from dspark_convert.target import Target

if TYPE_CHECKING:
    from dspark_convert.source.hub import Sink, Survey


class Silent:
    """A sink that tells nothing."""

    def note(self, text: str) -> None:
        pass

    @contextmanager
    def progress(self, _label: str, _total: int) -> Iterator[Callable[[int], None]]:
        yield lambda _done: None


def survey_model(model: Path, sink: Sink) -> Survey | None:
    """What a conversion needs of the repository that ``model`` names; None if it names none.

    Raises as ``source.hub.survey`` does.
    """
    hub_id = parse_hub_id(model)
    return None if hub_id is None else survey_repository(hub_id, sink)


def survey_repository(hub_id: HubId, sink: Sink) -> Survey:
    """What a conversion needs of a repository; raises as ``source.hub.survey`` does."""
    from dspark_convert.source.hub import survey

    return survey(hub_id, needed_tensors, sink)


def local_target(directory: Path | None, sink: Sink) -> Path | None:
    """``directory``, or where config and tokenizer lie now if it names a repository."""
    hub_id = None if directory is None else parse_hub_id(directory)
    if hub_id is None:
        return directory
    from dspark_convert.source.hub import fetch_target

    return fetch_target(hub_id, sink)


def plan_for_survey(survey: Survey, target: Target | None = None, options: Options | None = None) -> Plan:
    """The plan of a conversion before its tensors are fetched, and the finding that says how much that is."""
    from dspark_convert.source.hub import open_survey

    plan = plan_for_checkpoint(open_survey(survey, choose_tensors), target, options)
    told = info("hub-fetch", survey.repository.id.repo, f"{survey}.")
    return replace(plan, findings=(told, *plan.findings))
