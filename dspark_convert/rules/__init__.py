"""The catalogue of findings: what each rule means, why it matters and what to do.

One TOML a group, one table a rule. An id with ``*`` stands for ids that are made at run time
(``bf16-overflow``). tests/test_rules.py compares the catalogue with the source: every rule that is
told is here with its severities, and nothing else; docs/rules.md is made of it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from dspark_convert.findings import Severity

#: in the order in which they are documented
GROUPS = ("container", "keys", "meaning", "stages", "tensors", "vocabulary", "pair", "checkpoint", "writing", "checks")


@dataclass(frozen=True)
class Rule:
    """Each text is one or two sentences; `code` in them is marked as in Markdown.

    ``severities``: all that it can have, the usual one first. ``example``: a place where it is told.
    """

    id: str
    severities: tuple[Severity, ...]
    means: str
    why: str
    fix: str
    example: str


@dataclass(frozen=True)
class Group:
    title: str
    rules: tuple[Rule, ...]


@cache
def catalogue() -> tuple[Group, ...]:
    """All rules in their groups."""
    return tuple(_group(name) for name in GROUPS)


def find_rule(rule: str) -> Rule | None:
    """The entry of an id; None for one that is not documented."""
    known: Mapping[str, Rule] = {item.id: item for group in catalogue() for item in group.rules}
    if rule in known:
        return known[rule]
    return next((item for pattern, item in known.items() if "*" in pattern and fnmatchcase(rule, pattern)), None)


def _group(name: str) -> Group:
    table = tomllib.loads((files("dspark_convert.rules") / f"{name}.toml").read_text("utf-8"))
    return Group(table.pop("title"), tuple(_rule(rule, entry) for rule, entry in table.items()))


def _rule(rule: str, entry: Mapping[str, Any]) -> Rule:
    return Rule(rule, **{**entry, "severities": tuple(entry["severities"])})
