"""What is decoded: the built-in prompts of four kinds, or a file of one's own."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from dspark_convert.runtime.validation import read_prompts

#: the kind of prompts that come from a file
GIVEN = "given"


class Prompt(NamedTuple):
    kind: str
    text: str


def built_in() -> list[Prompt]:
    """The prompts of ``prompts.toml``, the kinds in turns: a run that is cut short has seen all of them."""
    table = tomllib.loads((files("dspark_convert.bench") / "prompts.toml").read_text("utf-8"))
    kinds = [[Prompt(kind, text) for text in texts] for kind, texts in table.items()]
    return [prompt for prompt in chain.from_iterable(zip_longest(*kinds)) if prompt is not None]


def from_file(path: Path) -> list[Prompt]:
    """One a line, as dspark-validate reads them. Raises UsageError or InputError as ``read_prompts`` does."""
    return [Prompt(GIVEN, text) for text in read_prompts(path)]
