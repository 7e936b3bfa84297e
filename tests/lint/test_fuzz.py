"""A draft whose metadata and tensors are replaced at random: an answer always comes, and quickly."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dspark_convert.cli.describe import meaning_fields, next_step, value_text
from dspark_convert.errors import DsparkError
from dspark_convert.inspection import inspect_file
from tests.draft_file import ARRAY, BOOL, F32, I32, STRING, TYPES, U32, DraftFile
from tests.family_file import dflash2, gemma4, kimi, nemotron, speculators_dflash
from tests.stage_file import StageFile

VALUES = [
    (U32, 0),
    (U32, 1),
    (U32, 2**32 - 1),
    (I32, -1),
    (F32, float("nan")),
    (F32, float("inf")),
    (F32, -1.0),
    (BOOL, True),
    (STRING, ""),
    (STRING, "dspark"),
    (STRING, "\x1b]0;x\x07"),
    (10, 2**64 - 1),
    (12, 1e308),
    (ARRAY, [], I32),
    (ARRAY, [2**31 - 1, -(2**31)], I32),
    (ARRAY, ["x", ""], STRING),
    (ARRAY, [float("nan")], F32),
    (ARRAY, [True], BOOL),
]
DIMENSIONS = [0, 1, 2, 31, 32, 64, 2**31, 2**63, 2**64 - 1]


def spoil(file: DraftFile, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 4)):
        key = rng.choice(list(file.kv))
        action = rng.randrange(4)
        if action == 0:
            del file.kv[key]
        elif action == 1:
            kind, value, *item = rng.choice(VALUES)
            file.kv[key] = (kind, value, item[0] if item else None)  # type: ignore[assignment]
        elif action == 2:
            name = rng.choice(list(file.tensors))
            shape = tuple(rng.choice(DIMENSIONS) for _ in range(rng.randrange(5)))
            file.tensors[name] = (rng.choice(list(TYPES)), shape)
            file.data[name] = bytes(64)
        else:
            del file.tensors[rng.choice(list(file.tensors))]


@pytest.mark.parametrize(
    "make", [DraftFile, StageFile, speculators_dflash, nemotron, kimi, dflash2, gemma4], ids=lambda make: make.__name__
)
def test_spoilt_drafts(tmp_path: Path, make: Callable[[], DraftFile]) -> None:
    rng = random.Random(17)
    seen: set[str] = set()
    for _ in range(400):
        file = make()
        # Small values tables only: what is tested here is not the reading of numbers.
        file.data = {name: bytes(32) for name in file.tensors}
        spoil(file, rng)
        try:
            inspection = inspect_file(file.write(tmp_path / "dspark-x.gguf"), deep=True)
        except DsparkError:
            continue
        seen |= {finding.rule for finding in inspection.findings}
        assert all(text for _, text in meaning_fields(inspection))
        assert all(next_step(inspection))
        assert all(value_text(value).isprintable() for value in inspection.metadata.values())
        json.dumps(inspection.to_json() | {"metadata": None})
    assert len(seen) > 25
