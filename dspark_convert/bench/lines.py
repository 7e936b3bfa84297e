"""A report as lines of text for a terminal 80 columns wide."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from dspark_convert.bench.calibration import Calibration
from dspark_convert.bench.costs import SettingCost
from dspark_convert.bench.counts import later_share
from dspark_convert.bench.report import PairPart
from dspark_convert.bench.terminal import Glyphs, bar
from dspark_convert.runtime.report import Acceptance

#: cells of a bar of shares, and of one of speeds, whose table is the widest
CELLS = 24
SPEED_CELLS = 11
#: how far half of the rounds may lie from the median on a machine that does nothing else
BUSY = 0.25


def acceptance_lines(acceptance: Acceptance, glyphs: Glyphs) -> Iterator[str]:
    """Position, counts, both shares, a bar over the first of them and a mark at the second."""
    yield f"position  drafted  accepted   share  if all before  share, {glyphs.mark} if all before"
    for position, drafted in enumerate(acceptance.drafted):
        given = acceptance.conditional_share(position)
        drawn = bar(acceptance.share(position), CELLS, glyphs, mark=given)
        shares = f"{acceptance.share(position):7.3f}  {'-' if given is None else f'{given:.3f}':>13}"
        yield f"{position:8}  {drafted:7}  {acceptance.accepted[position]:8} {shares}  {drawn}".rstrip()


def kind_lines(pair: PairPart) -> Iterator[str]:
    """One line a kind of prompt."""
    yield "kind         rounds  position 0  behind accepted  tokens a round"
    for kind, acceptance in {**pair.kinds, "all": pair.acceptance}.items():
        first = f"{acceptance.share(0):.3f}" if acceptance.drafted[0] else "-"
        later = later_share(acceptance)
        behind = "-" if later is None else f"{later:.3f}"
        yield f"{kind:11}  {acceptance.rounds:6}  {first:>10}  {behind:>15}  {acceptance.mean_accepted_length:14.2f}"


def calibration_lines(calibration: Calibration, glyphs: Glyphs) -> Iterator[str]:
    """One line a bin: a bar over what was accepted, a mark at what was predicted."""
    yield f"confidence  proposals  predicted  accepted            accepted, {glyphs.mark} predicted"
    for entry in calibration.bins:
        drawn = bar(entry.observed, CELLS, glyphs, mark=entry.predicted)
        figures = f"{entry.count:9}  {entry.predicted:9.3f}  {entry.observed:8.3f}"
        yield f"{entry.low:.1f} to {entry.high:.1f}  {figures}            {drawn}".rstrip()


def calibration_sentence(calibration: Calibration) -> str:
    """Both errors in words, and which way the head errs."""
    off = calibration.predicted - calibration.observed
    if abs(off) < 0.05:
        lean = "right on average"
    else:
        lean = f"too {'sure' if off > 0 else 'modest'} by {abs(off):.2f} on average"
    better = "better" if calibration.brier < calibration.base_brier else "no better"
    return (
        f"The confidence head is {lean} ({calibration.predicted:.2f} predicted, {calibration.observed:.2f} accepted);"
        f" expected calibration error {calibration.ece:.3f}. Its Brier score of {calibration.brier:.3f} is {better}"
        f" than that of always saying {calibration.observed:.2f} ({calibration.base_brier:.3f})."
    )


def cost_lines(costs: list[SettingCost], name: str, glyphs: Glyphs) -> Iterator[str]:
    """Times in ms a round, tokens a round, and the speed with a bar and a rule at that of plain decoding."""
    top = max(1.2, *(cost.speed.median for cost in costs))
    yield f"{name}  draft  verify   take  round  tokens  accepted  needed  speed  {glyphs.rule} plain"
    for cost in costs:
        setting = cost.setting.n_max if name == "n-max" else cost.setting.p_min
        times = (cost.draft_ms, cost.verify_ms, cost.inject_ms, cost.round_ms)
        draft, verify, take, whole = (milliseconds(entry.median) for entry in times)
        needed = "-" if cost.break_even is None else f"{cost.break_even:.0%}"
        speed = cost.speed.median
        drawn = bar(speed / top, SPEED_CELLS, glyphs, rule=1 / top)
        yield (
            f"{setting:5g}  {draft:>5}  {verify:>6}  {take:>5}  {whole:>5}  {cost.tokens:6.2f}  {cost.accepted:8.0%}"
            f"  {needed:>6}  {speed:4.2f}x  {drawn}"
        ).rstrip()


def spread_sentence(costs: list[SettingCost]) -> str:
    """What the columns are, and how far the figures scatter."""
    around = median((cost.round_ms.high - cost.round_ms.low) / cost.round_ms.median for cost in costs) / 2
    prompts = median((cost.speed.high - cost.speed.low) / cost.speed.median for cost in costs) / 2
    care = " The machine was busy: take the speeds with care." if around > BUSY else ""
    return (
        "Medians; times in ms a round; needed: what has to be accepted for a round to be worth its time. Half of the"
        f" rounds lie within {around:.0%} of these times, half of the prompts within {prompts:.0%} of the speed.{care}"
    )


def milliseconds(value: float) -> str:
    """Three figures."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
