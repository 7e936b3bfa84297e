"""The results as JUnit XML, which every CI shows: a test case for each outtype of a check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from dspark_convert.check.results import Result

#: what XML 1.0 cannot hold, not even escaped
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(path: Path, results: Sequence[Result]) -> str:
    """The XML document; ``path`` is the file of checks, which names the suite."""
    failures = sum(result.status == "fail" for result in results)
    errors = sum(result.status == "error" for result in results)
    seconds = f"{sum(result.seconds for result in results):.3f}"
    counts = {"tests": str(len(results)), "failures": str(failures), "errors": str(errors), "time": seconds}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": _text(path.name), **counts, "skipped": "0"})
    for result in results:
        names = {"classname": _text(result.name), "name": _text(f"{result.name} {result.outtype}")}
        case = ET.SubElement(suite, "testcase", names | {"time": f"{result.seconds:.3f}"})
        if result.status != "pass":
            kind = "failure" if result.status == "fail" else "error"
            step = next(step for step in result.steps if step.status == result.status)
            told = ET.SubElement(case, kind, {"message": _text(result.reasons[0]), "type": step.step})
            told.text = _text("\n".join(result.reasons))
        out = ET.SubElement(case, "system-out")
        out.text = _text("\n".join(f"{s.step}: {s.status}, {s.seconds:.1f} s" for s in result.steps))
        if result.cached:
            out.text += "\ncached: nothing has changed since it passed"
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=False) + "\n"


def _text(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
