"""What the values in a CHECKS.toml have to be: each reader returns the value or says in a clause what it should be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, get_args

from dspark_convert.check.checks import STEPS
from dspark_convert.errors import UsageError
from dspark_convert.options import Dialect, Experts, Outtype, SharedTensors


class Wrong(Exception):
    """The value is not what the key takes; the text continues "must be"."""


Reader = Callable[[Any], Any]


def text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise Wrong("a text")
    return value


def name(value: Any) -> str:
    """It becomes the name of a directory."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,99}", value, re.ASCII):
        raise Wrong('a name of letters, digits and ".", "_", "+", "-", at most 100 of them')
    return value


def text_or_no(value: Any) -> str | None:
    return None if value is False else text(value)


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong("true or false")
    return value


def count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Wrong("a whole number from 0 on")
    return value


def positive(value: Any) -> float:
    if not _is_number(value) or value <= 0:
        raise Wrong("a number above 0")
    return float(value)


def size(value: Any) -> int:
    """Bytes, or as ``--split-max-size`` takes them."""
    from dspark_convert.ggufio.split import parse_size

    if isinstance(value, str):
        try:
            return parse_size(value)
        except UsageError:
            raise Wrong("bytes, or a text such as 500M or 2G") from None
    return count(value)


def counts(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise Wrong("a list of whole numbers")
    try:
        return tuple(count(item) for item in value)
    except Wrong:
        raise Wrong("a list of whole numbers from 0 on") from None


def shares(value: Any) -> tuple[float, ...]:
    """One for the first position alone, or a list."""
    items = value if isinstance(value, list) else [value]
    if not items or not all(_is_number(item) and 0 <= item <= 1 for item in items):
        raise Wrong("a share from 0 to 1, or a list of one for each position")
    return tuple(float(item) for item in items)


def rules(value: Any) -> frozenset[str]:
    from dspark_convert.rules import find_rule

    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Wrong("a list of rules")
    unknown = [item for item in value if find_rule(item) is None]
    if unknown:
        raise Wrong(f"a list of rules of docs/rules.md, which {', '.join(map(repr, unknown))} is not")
    return frozenset(value)


def digest(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value.lower()):
        raise Wrong("a SHA-256, 64 hexadecimal digits")
    return value.lower()


def one_of(choices: tuple[str, ...]) -> Reader:
    def read(value: Any) -> str:
        if value not in choices:
            raise Wrong(f"one of {', '.join(choices)}")
        return str(value)

    return read


def some_of(choices: tuple[str, ...]) -> Reader:
    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value or not all(item in choices for item in value):
            raise Wrong(f"a list of some of {', '.join(choices)}")
        if len(set(value)) < len(value):
            raise Wrong("a list that names each once")
        return tuple(value)

    return read


def outtypes(value: list[str]) -> tuple[Outtype, ...]:
    """Of a command line; raises UsageError."""
    try:
        chosen: tuple[Outtype, ...] = CHECK["outtypes"](value)
    except Wrong as fault:
        raise UsageError(f"--outtype {' '.join(value)} must be {fault}.") from None
    return chosen


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


#: key of a [[check]] -> its reader
CHECK: dict[str, Reader] = {
    "name": name,
    "source": text,
    "target": text,
    "target_gguf": text,
    "outtypes": some_of(get_args(Outtype)),
    "dialect": one_of(get_args(Dialect)),
    "shared_tensors": one_of(get_args(SharedTensors)),
    "experts": one_of(get_args(Experts)),
    "dequantize": yes_or_no,
    "steps": some_of(STEPS),
    "prompts": text,
    "reference": text_or_no,
}
#: key of its [check.expect] -> its reader
EXPECT: dict[str, Reader] = {
    "block_size": count,
    "taps": counts,
    "tensors": count,
    "plan": text,
    "plan_sha256": digest,
    "golden": text,
    "acceptance": shares,
    "mean_accepted_length": positive,
    "parity": positive,
    "max_size": size,
    "warnings": rules,
}
