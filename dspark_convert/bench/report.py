"""What a benchmark found, as data and as the JSON that is promised to stay as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dspark_convert.bench.calibration import Calibration
from dspark_convert.bench.costs import SettingCost, Spread
from dspark_convert.bench.counts import Diagnosis
from dspark_convert.findings import Finding
from dspark_convert.runtime.report import Acceptance


@dataclass(frozen=True)
class PairPart:
    """What the pair does, greedily, on any machine. ``kinds``: acceptance of each kind of prompt.

    ``same_texts`` of the ``texts`` that were decoded both ways are equal; the others part on near-ties.
    """

    acceptance: Acceptance
    kinds: Mapping[str, Acceptance]
    calibration: Calibration | None
    diagnosis: Diagnosis
    texts: int
    same_texts: int


@dataclass(frozen=True)
class MachinePart:
    """What it costs here. ``plain``: ms a token without a draft, None if no text has a second token.

    ``n_max`` and ``p_min`` are the settings that were tried, without and with a threshold; both hold the whole block.
    """

    plain: Spread | None
    n_max: Sequence[SettingCost]
    p_min: Sequence[SettingCost]
    best: SettingCost | None
    verdict: str

    @property
    def settings(self) -> list[SettingCost]:
        """Each setting once."""
        return [*self.n_max, *(cost for cost in self.p_min if cost not in self.n_max)]


@dataclass(frozen=True)
class BenchReport:
    """``conditions``: how it was measured; ``command``: a llama-server line with the best setting."""

    library: Mapping[str, Any]
    draft: Mapping[str, Any]
    conditions: Mapping[str, Any]
    pair: PairPart
    machine: MachinePart
    command: str
    findings: Sequence[Finding] = ()

    def to_json(self) -> dict[str, Any]:
        """The ``dspark-bench/1`` document."""
        pair, machine = self.pair, self.machine
        return {
            "schema": "dspark-bench/1",
            "library": dict(self.library),
            "draft": dict(self.draft),
            "conditions": dict(self.conditions),
            "pair": {
                "acceptance": acceptance_json(pair.acceptance),
                "kinds": {kind: acceptance_json(acceptance) for kind, acceptance in pair.kinds.items()},
                "calibration": asdict(pair.calibration) if pair.calibration else None,
                "diagnosis": asdict(pair.diagnosis),
                "texts": pair.texts,
                "same_texts": pair.same_texts,
            },
            "machine": {
                "plain_ms": asdict(machine.plain) if machine.plain else None,
                "settings": [_cost_json(cost) for cost in machine.settings],
                "best": machine.best.setting._asdict() if machine.best else None,
                "verdict": machine.verdict,
            },
            "command": self.command,
            "findings": [finding.to_json() for finding in self.findings],
        }


def acceptance_json(acceptance: Acceptance) -> dict[str, Any]:
    """Counts and shares per position, 0 first; null where nothing was proposed."""
    positions = range(len(acceptance.drafted))
    return {
        "rounds": acceptance.rounds,
        "drafted": list(acceptance.drafted),
        "accepted": list(acceptance.accepted),
        "cumulative": [acceptance.share(position) if acceptance.drafted[position] else None for position in positions],
        "conditional": [acceptance.conditional_share(position) for position in positions],
        "mean_accepted_length": acceptance.mean_accepted_length,
    }


def _cost_json(cost: SettingCost) -> dict[str, Any]:
    return {**cost.setting._asdict(), **{key: value for key, value in asdict(cost).items() if key != "setting"}}
