"""Drafts of every kind: how they are called, how llama-server runs them, and that the JSON is what its schema says."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources

import jsonschema
import pytest

from dspark_convert.bench.records import Setting
from dspark_convert.bench.words import heading_of
from tests.bench.made import SHAPE, made_report, made_round, made_turn

SCHEMA = json.loads(resources.files("dspark_convert").joinpath("schemas/bench-1.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("kind", "name", "spec_type"),
    [
        ("dspark", "DSpark", "draft-dspark"),
        ("dflash", "DFlash", "draft-dflash"),
        ("dflash2", "DFlash2", "draft-dflash"),  # llama.cpp has no type of its own for it
    ],
)
def test_a_kind(kind: str, name: str, spec_type: str) -> None:
    report = made_report([made_turn({Setting(4): [made_round(2)] * 8})], replace(SHAPE, kind=kind))
    assert f": {name}, 4 proposals a round" in heading_of(report)
    assert f" --spec-type {spec_type} --spec-draft-n-max 4" in report.command
    document = json.loads(json.dumps(report.to_json()))
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
