"""Configs of every family with each key spoilt in turn: there is a plan, or what is wrong is told."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from dspark_convert.errors import InputError
from dspark_convert.plan import Plan, plan_for_checkpoint
from dspark_convert.source.checkpoint import Checkpoint, open_checkpoint
from dspark_convert.specs.match import match_spec
from fixtures import families
from tests.checkpoints import ABSENT

#: one of each layout of keys
NAMES = (
    "deepspec_qwen36",
    "kolibri",
    "lfm2",
    "mimo",
    "muse",
    "nemotron",
    "specforge_yarn",
    "speculators_dflash",
    "speculators_dspark_bonus",
    "zlab_dflash_flat",
)
VALUES: tuple[Any, ...] = (ABSENT, 0, -1, 10**12, 0.5, float("nan"), "x", [], ["x"], {}, True)
KeyPath = tuple[str, ...]


@pytest.fixture(scope="module", params=NAMES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    root: Path = tmp_path_factory.mktemp("spoilt") / request.param
    return open_checkpoint(families.make(request.param, root))


def paths(config: Mapping[str, Any], start: KeyPath = ()) -> Iterator[KeyPath]:
    for key, value in config.items():
        yield (*start, key)
        if isinstance(value, dict):
            yield from paths(value, (*start, key))


def spoilt(checkpoint: Checkpoint, path: KeyPath, value: Any) -> Checkpoint:
    config = copy.deepcopy(checkpoint.config)
    held = config
    for key in path[:-1]:
        held = held[key]
    if value is ABSENT:
        del held[path[-1]]
    else:
        held[path[-1]] = value
    return replace(checkpoint, config=config, mask_embedding=None)


def planned(checkpoint: Checkpoint) -> Plan | None:
    """None where the checkpoint is refused as that of no known family."""
    try:
        return plan_for_checkpoint(checkpoint)
    except InputError:
        return None


def test_there_is_a_plan_or_an_error(checkpoint: Checkpoint) -> None:
    for path in paths(checkpoint.config):
        for value in VALUES:
            plan = planned(spoilt(checkpoint, path, value))
            if plan is not None and not plan.errors:
                assert plan.draft is not None and plan.tensors and plan.metadata, (path, value)
            assert plan is None or all(len(finding.message) < 700 for finding in plan.findings), (path, value)


def test_nonsense_in_a_key_that_counts_is_told(checkpoint: Checkpoint) -> None:
    spec = match_spec(checkpoint.config, checkpoint.names)
    before = planned(replace(checkpoint, mask_embedding=None))
    assert before is not None and not before.errors
    for path in paths(checkpoint.config):
        above = [".".join(path[: i + 1]) for i in range(len(path))]
        if any(fnmatchcase(name, pattern) for name in above for pattern in spec.inert):
            continue
        plan = planned(spoilt(checkpoint, path, {"odd": [None, "thing"]}))
        told = set() if plan is None else {f for f in plan.findings if f.severity != "info"} - {*before.findings}
        assert plan is None or told, path
