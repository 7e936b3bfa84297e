"""One thing that is wrong, or worth knowing, about a draft: the same record everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]

#: findings of one rule that are told; a stranger's file can have one for every few of its bytes
MAX_OF_A_RULE = 100


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


class FewOfEach:
    """Takes in findings, of each rule MAX_OF_A_RULE, and of the others says only how many there are."""

    def __init__(self) -> None:
        self._held: list[Finding] = []
        self._count: Counter[tuple[str, Severity]] = Counter()

    def append(self, finding: Finding) -> None:
        kind = finding.rule, finding.severity
        self._count[kind] += 1
        if self._count[kind] <= MAX_OF_A_RULE:
            self._held.append(finding)

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.append(finding)

    def __iter__(self) -> Iterator[Finding]:
        yield from self._held
        for (rule, severity), count in self._count.items():
            if count > MAX_OF_A_RULE:
                more = count - MAX_OF_A_RULE
                yield Finding(rule, severity, "file", f"there are {more:,} more findings of this kind.")
