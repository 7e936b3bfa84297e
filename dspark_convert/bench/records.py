"""What was measured, as plain values: turns of one plain run and runs with the draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """``--spec-draft-n-max`` and ``--spec-draft-p-min`` of llama.cpp."""

    n_max: int
    p_min: float = 0.0


@dataclass(frozen=True)
class Round:
    """``drafts`` proposals were verified, ``accepted`` of them taken; times in ms.

    ``confidences``: of all proposals of the block, also of those that were not verified; None without such a head.
    """

    drafts: tuple[int, ...]
    accepted: int
    draft_ms: float
    verify_ms: float
    inject_ms: float
    confidences: tuple[float, ...] | None = None

    @property
    def ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.inject_ms


@dataclass(frozen=True)
class Turn:
    """A prompt decoded plainly, a moment later with the draft at some settings.

    ``steps_ms``: of each plain token but the first. ``texts``: tokens per setting. ``sweep``: of the turns that try
    settings; the others, one a prompt with the whole block, are what acceptance is counted on.
    """

    prompt: int
    kind: str
    sweep: bool
    tokens: tuple[int, ...]
    steps_ms: tuple[float, ...]
    rounds: Mapping[Setting, tuple[Round, ...]]
    texts: Mapping[Setting, tuple[int, ...]]

    @property
    def counted(self) -> int:
        """Tokens of the text that a draft could propose: all but the first, which comes from the prompt."""
        return len(self.tokens) - 1


def read_turns(measured: Mapping[str, Any], kinds: Sequence[str]) -> list[Turn]:
    """The worker's result; ``kinds``: of the prompts, in their order."""
    return [_turn(entry, kinds[entry["prompt"]]) for entry in measured["turns"]]


def _turn(entry: Mapping[str, Any], kind: str) -> Turn:
    runs = {Setting(run["n_max"], run["p_min"]): run for run in entry["drafted"]}
    return Turn(
        prompt=entry["prompt"],
        kind=kind,
        sweep=entry["sweep"],
        tokens=tuple(entry["tokens"]),
        steps_ms=tuple(entry["steps_ms"]),
        rounds={setting: tuple(map(_round, run["rounds"])) for setting, run in runs.items()},
        texts={setting: tuple(run["tokens"]) for setting, run in runs.items()},
    )


def _round(entry: Mapping[str, Any]) -> Round:
    confidences = entry["confidences"]
    return Round(
        drafts=tuple(entry["drafts"]),
        accepted=entry["accepted"],
        draft_ms=entry["draft_ms"],
        verify_ms=entry["verify_ms"],
        inject_ms=entry["inject_ms"],
        confidences=None if confidences is None else tuple(confidences),
    )
