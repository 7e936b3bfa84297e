"""The report as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dspark_convert.bench.calibration import Calibration
from dspark_convert.bench.charts import charts_of
from dspark_convert.bench.costs import SettingCost, Spread
from dspark_convert.bench.lines import calibration_sentence, milliseconds
from dspark_convert.bench.report import BenchReport
from dspark_convert.bench.svg import DARK, LIGHT, style
from dspark_convert.bench.words import (
    PAIR_HEADING,
    command_heading,
    heading_of,
    limits_of,
    machine_heading,
    mean_length,
    same_texts,
)
from dspark_convert.runtime.report import Acceptance

_STYLE = """
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; border-bottom: 1px solid var(--grid); }
.verdict { font-size: 1.25rem; font-weight: 600; border-left: 6px solid var(--one); padding-left: .8rem; }
.wrong { border-left: 6px solid var(--two); padding-left: .8rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.5rem; }
.chart { width: 100%; height: auto; }
.table { overflow-x: auto; margin: 1.5rem 0; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .6rem; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { font-weight: 600; color: var(--soft); } .soft { color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; padding: .8rem; border: 1px solid var(--grid); }
@media print { body { max-width: none; } }
"""


def page_of(report: BenchReport) -> str:
    """The whole document."""
    title = escape(heading_of(report))
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="verdict">{escape(report.machine.verdict)}</p>',
        *(
            f'<p class="wrong">{escape(finding.message)} <span class="soft">[{finding.rule}]</span></p>'
            for finding in report.findings
        ),
        f"<p>{command_heading(report)}</p>",
        f"<pre>{escape(report.command)}</pre>",
        *_pair(report),
        *_machine(report),
        f'<p class="soft">Measured with {escape(str(report.library["source"]))}: {escape(_conditions(report))}.</p>',
    ]
    variables = style({name: f"var(--{name})" for name in LIGHT})
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{_colours()}{_STYLE}{variables}</style>\n"
        "</head>\n<body>\n"
    )
    return head + "\n".join(parts) + "\n</body>\n</html>\n"


def _colours() -> str:
    light, dark = ("".join(f"--{name}: {value}; " for name, value in side.items()) for side in (LIGHT, DARK))
    return f":root {{ {light}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}"


def _pair(report: BenchReport) -> Iterable[str]:
    pair = report.pair
    acceptance, *_ = charts = charts_of(report)
    yield f"<h2>{PAIR_HEADING}</h2>"
    yield f"<p>{escape(_sentence(pair.diagnosis.text))} {mean_length(pair)} {same_texts(pair)}</p>"
    shown = [acceptance, *([charts[-1]] if pair.calibration else [])]
    yield f'<div class="charts">{"".join(plot.svg() for plot in shown)}</div>'
    if pair.calibration:
        yield f"<p>{escape(calibration_sentence(pair.calibration))}</p>"
    yield _acceptance_table(pair.acceptance)
    if len(pair.kinds) > 1:
        yield _kinds_table({**pair.kinds, "all": pair.acceptance})
    if pair.calibration:
        yield _calibration_table(pair.calibration)


def _machine(report: BenchReport) -> Iterable[str]:
    machine = report.machine
    yield f"<h2>{escape(machine_heading(report))}</h2>"
    if machine.plain:
        yield f"<p>Plain decoding: {_times(machine.plain)} ms a token, {1e3 / machine.plain.median:,.1f} tokens/s.</p>"
    charts = charts_of(report)[1:]
    shown = charts[:-1] if report.pair.calibration else charts
    yield f'<div class="charts">{"".join(plot.svg() for plot in shown)}</div>'
    yield _costs_table(machine.settings)
    yield (
        '<p class="soft">Times in ms a round: the median, and what half of the rounds lie between. Needed: the share of'
        " proposals that has to be accepted for a round to be worth its time.</p>"
    )
    yield from (f"<p>{escape(text)}</p>" for text in limits_of(report.conditions))


def _acceptance_table(acceptance: Acceptance) -> str:
    rows = []
    for position, drafted in enumerate(acceptance.drafted):
        given = acceptance.conditional_share(position)
        share = f"{acceptance.share(position):.3f}" if drafted else "-"
        rows.append((position, drafted, acceptance.accepted[position], share, "-" if given is None else f"{given:.3f}"))
    return _table(("position", "drafted", "accepted", "share", "if all before"), rows)


def _kinds_table(kinds: dict[str, Acceptance]) -> str:
    width = max(len(acceptance.drafted) for acceptance in kinds.values())
    rows = [
        (kind, entry.rounds, f"{entry.mean_accepted_length:.2f}", *(f"{entry.share(p):.2f}" for p in range(width)))
        for kind, entry in kinds.items()
    ]
    return _table(("kind", "rounds", "tokens a round", *map(str, range(width))), rows)


def _calibration_table(calibration: Calibration) -> str:
    rows = [
        (f"{entry.low:.1f} to {entry.high:.1f}", entry.count, f"{entry.predicted:.3f}", f"{entry.observed:.3f}")
        for entry in calibration.bins
    ]
    return _table(("confidence", "proposals", "predicted", "accepted"), rows)


def _costs_table(costs: Sequence[SettingCost]) -> str:
    heads = ("n-max", "p-min", "speed", "tokens", "accepted", "needed", "round", "draft", "verify", "take")
    rows = [
        (
            cost.setting.n_max,
            f"{cost.setting.p_min:g}",
            f"{cost.speed.median:.2f}x ({cost.speed.low:.2f} to {cost.speed.high:.2f})",
            f"{cost.tokens:.2f}",
            f"{cost.accepted:.0%}",
            "-" if cost.break_even is None else f"{cost.break_even:.0%}",
            _times(cost.round_ms),
            *(milliseconds(value.median) for value in (cost.draft_ms, cost.verify_ms, cost.inject_ms)),
        )
        for cost in costs
    ]
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _times(value: Spread) -> str:
    return f"{milliseconds(value.median)} ({milliseconds(value.low)} to {milliseconds(value.high)})"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _conditions(report: BenchReport) -> str:
    told = report.conditions
    return f"greedy decoding of {told['prompts_measured']} prompts, {told['max_tokens']} tokens each at most"
