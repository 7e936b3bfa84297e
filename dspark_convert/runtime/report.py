"""What a validation found, as data and as the JSON that is promised to stay as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dspark_convert.runtime.parity_verdict import Parity

Status = Literal["pass", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """``detail`` says in a sentence what was found, or why the check was skipped."""

    name: str
    status: Status
    detail: str


@dataclass(frozen=True)
class Acceptance:
    """Counts per block position, summed over ``rounds`` rounds.

    ``drafted[i]`` proposals were made for position i, ``accepted[i]`` of them were accepted
    together with all before them. ``reached[i]``: of these proposals, those behind accepted ones only.
    """

    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    rounds: int
    reached: tuple[int, ...]

    @property
    def mean_accepted_length(self) -> float:
        """Tokens a round: the accepted drafts and the target's own one."""
        return 1 + sum(self.accepted) / self.rounds if self.rounds else 0.0

    def share(self, position: int) -> float:
        """Accepted of all proposed at ``position``."""
        return self.accepted[position] / self.drafted[position] if self.drafted[position] else 0.0

    def conditional_share(self, position: int) -> float | None:
        """Accepted at ``position`` where all before were; None if that never happened."""
        if position == 0:
            return self.share(0)
        return self.accepted[position] / self.reached[position] if self.reached[position] else None

    def to_json(self) -> dict[str, Any]:
        return {
            "drafted": list(self.drafted),
            "accepted": list(self.accepted),
            "mean_accepted_length": self.mean_accepted_length,
        }


@dataclass(frozen=True)
class ValidationReport:
    """``acceptance`` and ``lossless`` are None if decoding did not take place, ``parity`` also without a reference.

    ``library`` holds path, source, struct layouts and injection protocol, as far as they are known.
    """

    library: dict[str, Any]
    checks: tuple[Check, ...]
    acceptance: Acceptance | None = None
    lossless: bool | None = None
    parity: Parity | None = None

    def check(self, name: str) -> Check | None:
        """The check of that name, or None if it was not made."""
        return next((check for check in self.checks if check.name == name), None)

    @property
    def passed(self) -> bool:
        """Whether everything was checked and nothing is wrong."""
        return bool(self.checks) and all(check.status == "pass" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The ``dspark-validate/1`` document; ``parity`` is null without a reference."""
        return {
            "schema": "dspark-validate/1",
            "library": self.library,
            "checks": [{"name": check.name, "status": check.status, "detail": check.detail} for check in self.checks],
            "parity": self.parity.to_json() if self.parity else None,
            "acceptance": self.acceptance.to_json() if self.acceptance else None,
            "lossless": self.lossless,
        }
