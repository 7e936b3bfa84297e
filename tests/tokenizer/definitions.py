"""Definitions of the table, turned back into what tokenizer.json would say."""

from __future__ import annotations

from typing import Any

from dspark_convert.tokenizer.pre import Entry
from tests.tokenizer.making import BYTES, sequence, split


def definition(entry: Entry) -> dict[str, Any]:
    steps = {
        "digits": {"type": "Digits", "individual_digits": True},
        "bytes": BYTES,
        "gpt-2 bytes": {**BYTES, "use_regex": True},
    }
    return sequence(*(split(step[1]) if step[0] == "split" else steps[step[0]] for step in entry.steps))
