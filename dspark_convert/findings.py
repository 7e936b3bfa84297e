"""One thing that is wrong, or worth knowing, about a draft: the same record everywhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """``rule`` is a stable kebab-case id, ``where`` a file, tensor or key.

    ``message`` is a sentence with a full stop, ``fix`` what to do: a clause without one.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def error(rule: str, where: str, message: str, fix: str = "") -> Finding:
    return Finding(rule, "error", where, message, fix)


def warning(rule: str, where: str, message: str, fix: str = "") -> Finding:
    return Finding(rule, "warning", where, message, fix)


def info(rule: str, where: str, message: str, fix: str = "") -> Finding:
    return Finding(rule, "info", where, message, fix)
