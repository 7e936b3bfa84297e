"""The pictures of a report: acceptance, speed over the settings, reliability of the confidence head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from dspark_convert.bench.calibration import Calibration
from dspark_convert.bench.costs import SettingCost
from dspark_convert.bench.records import Setting
from dspark_convert.bench.report import BenchReport
from dspark_convert.bench.svg import Plot
from dspark_convert.runtime.report import Acceptance

SHARES = [(value / 4, f"{value / 4:.0%}") for value in range(5)]
TENTHS = [(value / 10, f"{value / 10:.1f}") for value in range(0, 11, 2)]


def charts_of(report: BenchReport) -> list[Plot]:
    """Those for which there is something to show."""
    plots = [acceptance_chart(report.pair.acceptance)]
    if report.machine.n_max:
        plots.append(
            speed_chart(report.machine.n_max, "n-max", "proposals a round (--spec-draft-n-max)", lambda s: s.n_max)
        )
    if len(report.machine.p_min) > 1:
        n_max = report.machine.p_min[0].setting.n_max
        label = f"confidence threshold (--spec-draft-p-min) at n-max {n_max}"
        plots.append(speed_chart(report.machine.p_min, "p-min", label, lambda s: s.p_min))
    if report.pair.calibration:
        plots.append(reliability_chart(report.pair.calibration))
    return plots


def acceptance_chart(acceptance: Acceptance) -> Plot:
    count = len(acceptance.drafted)
    plot = Plot(
        title="Acceptance over the positions of a block",
        x_label="position (0 is the first proposal)",
        y_label="accepted",
        x_range=(-0.6, count - 0.4),
        y_range=(0, 1),
        description="Share of proposals accepted at each position: "
        + ", ".join(f"{acceptance.share(position):.2f}" for position in range(count)),
    )
    plot.y_ticks(SHARES)
    step = -(-count // 16)
    plot.x_ticks([(position, str(position)) for position in range(0, count, step)])
    given = [(p, share) for p in range(count) if (share := acceptance.conditional_share(p)) is not None]
    for position in range(count):
        share, text = acceptance.share(position), f"{acceptance.accepted[position]} of {acceptance.drafted[position]}"
        plot.bar(position, share, 0.62, f"position {position}: {text} accepted, {share:.1%}")
    plot.line(given)
    for position, share in given:
        plot.diamond(position, share, f"position {position}: {share:.1%} where all before were accepted")
    plot.legend([("bar", "of all proposals"), ("diamond", "where all before were accepted")])
    return plot


def speed_chart(costs: Sequence[SettingCost], name: str, x_label: str, x_of: Callable[[Setting], float]) -> Plot:
    """Median speed, with the middle half of the prompts, over ``x_of`` of the settings."""
    xs = [x_of(cost.setting) for cost in costs]
    gap = min((b - a for a, b in pairwise(xs)), default=1.0)
    top = max(1.2, *(cost.speed.high for cost in costs)) * 1.12
    plot = Plot(
        title=f"Speed against plain decoding, over {name}",
        x_label=x_label,
        y_label="times as fast",
        x_range=(min(xs) - gap / 2, max(xs) + gap / 2),
        y_range=(0, top),
        description="Speed over plain decoding: "
        + ", ".join(f"{x:g}: {cost.speed.median:.2f}x" for x, cost in _zip(xs, costs)),
    )
    tick = nice_step(top / 4)
    plot.y_ticks([(value * tick, f"{value * tick:g}x") for value in range(int(top / tick) + 1)])
    plot.x_ticks([(x, f"{x:g}") for x in xs])
    plot.line([(plot.x_range[0], 1), (plot.x_range[1], 1)], "rule")
    for x, cost in _zip(xs, costs):
        speed = cost.speed
        plot.whisker(x, speed.low, speed.high)
        text = f"{x:g}: {speed.median:.2f}x, half of the prompts from {speed.low:.2f}x to {speed.high:.2f}x"
        plot.dot(x, speed.median, 6, text)
        plot.label(x, speed.median, f"{speed.median:.2f}", "start", dx=10, dy=4)
    plot.legend([("dot", "median, and half of the prompts"), ("rule", "plain decoding")])
    return plot


def reliability_chart(calibration: Calibration) -> Plot:
    plot = Plot(
        title="Does the confidence head say how often it is right?",
        x_label="confidence",
        y_label="accepted",
        x_range=(0, 1),
        y_range=(0, 1.05),
        description="Accepted share over confidence: "
        + ", ".join(f"{entry.predicted:.2f}: {entry.observed:.2f}" for entry in calibration.bins),
    )
    plot.y_ticks(SHARES)
    plot.x_ticks(TENTHS)
    plot.line([(0, 0), (1, 1)], "rule")
    most = max(entry.count for entry in calibration.bins)
    for entry in calibration.bins:
        radius = 3 + 9 * math.sqrt(entry.count / most)
        text = f"{entry.count} proposals of confidence {entry.predicted:.2f}: {entry.observed:.1%} accepted"
        plot.dot(entry.predicted, entry.observed, radius, text)
    plot.legend([("dot", "proposals; the larger, the more"), ("rule", "as good as it says")])
    return plot


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below ``least``."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _zip(xs: Sequence[float], costs: Sequence[SettingCost]) -> list[tuple[float, SettingCost]]:
    return list(zip(xs, costs, strict=True))
