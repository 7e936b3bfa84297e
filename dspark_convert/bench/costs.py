"""What a round costs on this machine, and what it gives for that. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from dspark_convert.bench.records import Round, Setting, Turn

#: how far two speeds have to be apart to be told from each other
MARGIN = 0.03


@dataclass(frozen=True)
class Spread:
    """The median, and the quartiles around it: half of the values lie between them."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    if len(values) < 2:
        return Spread(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


@dataclass(frozen=True)
class SettingCost:
    """One setting over ``turns`` turns. Times in ms.

    ``drafted`` and ``tokens`` are means a round: proposals that were verified, and tokens gained, the target's own one
    among them. ``accepted``: the share of the verified proposals that were taken. ``break_even``: the share at which
    a round is worth what it costs (``break_even``), None with a p_min, where rounds are of many sizes. ``speed``:
    tokens a second over those of plain decoding, a ratio for each turn.
    """

    setting: Setting
    turns: int
    draft_ms: Spread
    verify_ms: Spread
    inject_ms: Spread
    round_ms: Spread
    drafted: float
    tokens: float
    accepted: float
    break_even: float | None
    speed: Spread


def plain_step(turns: Iterable[Turn]) -> Spread | None:
    """What one token costs without a draft, in ms; None if every text ended at once."""
    steps = [value for turn in turns for value in turn.steps_ms]
    return spread(steps) if steps else None


def setting_cost(turns: Iterable[Turn], setting: Setting) -> SettingCost | None:
    """None if no turn has a plain step and a round at ``setting``."""
    measured = [turn for turn in turns if turn.steps_ms and turn.rounds.get(setting)]
    rounds = [entry for turn in measured for entry in turn.rounds[setting]]
    plain = plain_step(measured)
    if plain is None or not rounds:
        return None
    drafted = sum(len(entry.drafts) for entry in rounds)
    taken = sum(entry.accepted for entry in rounds)
    round_ms = spread([entry.ms for entry in rounds])
    return SettingCost(
        setting=setting,
        turns=len(measured),
        draft_ms=spread([entry.draft_ms for entry in rounds]),
        verify_ms=spread([entry.verify_ms for entry in rounds]),
        inject_ms=spread([entry.inject_ms for entry in rounds]),
        round_ms=round_ms,
        drafted=drafted / len(rounds),
        tokens=1 + taken / len(rounds),
        accepted=taken / drafted if drafted else 0.0,
        break_even=None if setting.p_min else break_even(1 / plain.median, round_ms.median, setting.n_max),
        speed=spread([speed_ratio(turn.steps_ms, turn.rounds[setting]) for turn in measured]),
    )


def break_even(raw: float, step: float, block: int) -> float:
    """The share of proposals that has to be accepted for a round to be worth its time.

    ``raw``: speed of plain decoding, in tokens a ms; ``step``: what a round costs, in ms; ``block``: proposals a round.
    In the time of a round plain decoding makes raw * step tokens. A round makes 1 + acc * block: the target's own
    token and the accepted proposals. Equal at acc = (raw * step - 1) / block. Above 1 it cannot pay at all, below 0 it
    always does.
    """
    return (raw * step - 1) / block


def speed_ratio(steps_ms: Sequence[float], rounds: Sequence[Round]) -> float:
    """Tokens a second with the draft over those without, of one turn."""
    tokens = sum(entry.accepted + 1 for entry in rounds)
    return tokens / sum(entry.ms for entry in rounds) * (sum(steps_ms) / len(steps_ms))


def best_of(costs: Sequence[SettingCost]) -> SettingCost | None:
    """The setting with the highest median speed; one with a threshold only if it is faster by ``MARGIN``."""
    simple = [cost for cost in costs if not cost.setting.p_min]
    best = max(simple, key=_speed, default=None)
    other = max(costs, key=_speed, default=None)
    if best is None or other is None or other.speed.median > best.speed.median * (1 + MARGIN):
        return other
    return best


def _speed(cost: SettingCost) -> float:
    return cost.speed.median
