"""Many findings on one screen: worst first, those of one rule together, wrapped on a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from dspark_convert.cli.output import SEVERITY_COLOURS, WHERE_WIDTH, Output, coloured, wrapped
from dspark_convert.cli.text import abridged, safe
from dspark_convert.findings import Finding, Severity

WORDS: dict[Severity, tuple[str, str]] = {
    "error": ("error", "errors"),
    "warning": ("warning", "warnings"),
    "info": ("info", "infos"),
}

#: places of one rule that a terminal shows; into a file or pipe go all
SHOWN_PLACES = 3


def tally(findings: Sequence[Finding]) -> str:
    """ "2 errors, 1 note"; empty if there is nothing."""
    count = Counter(finding.severity for finding in findings)
    return ", ".join(
        f"{count[severity]:,} {WORDS[severity][count[severity] > 1]}" for severity in WORDS if count[severity]
    )


def show_findings(out: Output, findings: Sequence[Finding]) -> None:
    """All findings for a reader, to stdout: a finding alone on a line of its own, several of a rule under one head."""
    terminal = sys.stdout.isatty()
    for severity in WORDS:
        of_severity = [finding for finding in findings if finding.severity == severity]
        order = list(dict.fromkeys(finding.rule for finding in of_severity))
        for rule, group in groupby(sorted(of_severity, key=lambda f: order.index(f.rule)), key=lambda f: f.rule):
            for line in _group(rule, severity, list(group), terminal=terminal):
                out.line(line)


def _group(rule: str, severity: Severity, found: Sequence[Finding], *, terminal: bool) -> Iterator[str]:
    head = f"{coloured(sys.stdout, SEVERITY_COLOURS[severity], severity)}: "
    indent = len(severity) + 2
    if len(found) == 1 or not terminal:
        for finding in found:
            yield from wrapped(f"{_sentence(finding)} [{safe(rule)}]", head, indent)
            if finding.fix:
                yield from wrapped(safe(finding.fix), "  fix: ")
        return
    yield f"{head}{safe(rule)}, {len(found):,} times"
    for finding in found[:SHOWN_PLACES]:
        yield from wrapped(_sentence(finding), "  - ")
    if len(found) > SHOWN_PLACES:
        yield f"  - and {len(found) - SHOWN_PLACES:,} more, which --json lists"
    for fix in list(dict.fromkeys(finding.fix for finding in found if finding.fix))[:SHOWN_PLACES]:
        yield from wrapped(safe(fix), "  fix: ")


def _sentence(finding: Finding) -> str:
    # Most messages name the place themselves.
    where = "" if finding.where in finding.message else f"{abridged(finding.where, WHERE_WIDTH)}: "
    return f"{where}{abridged(finding.message.rstrip('.'))}"
