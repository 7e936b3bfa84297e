"""JUnit XML, Markdown and exit codes, of results that say anything."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

from dspark_convert.check.junit import junit
from dspark_convert.check.results import Result, StepResult, exit_code, summary
from dspark_convert.check.table import header, markdown, rows

EVIL = "a\x00b\x1b[2J]]>&<script>|`\ud800\n::error::"
GOOD = Result("good", "bf16", (StepResult("plan", "pass", 0.25), StepResult("convert", "pass", 1.0)))
BAD = Result("bad", "auto", (StepResult("plan", "fail", 0.5, ("first.", EVIL)), StepResult("convert", "skip")))
LOST = Result("lost", "auto", (StepResult("plan", "error", 0.0, ("no network.",), 4),))
#: what the common schema of JUnit XML (Jenkins' junit-10.xsd) knows, of what is written here
ATTRIBUTES = {
    "testsuites": {"tests", "failures", "errors", "time", "name", "disabled"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "id", "package"},
    "testcase": {"name", "classname", "time", "assertions", "status"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "system-out": set[str](),
}
CHILDREN = {
    "testsuites": ["testsuite"],
    "testsuite": ["testcase"],
    "testcase": ["error", "failure", "system-out"],
}


def tree(*results: Result) -> ET.Element:
    return ET.fromstring(junit(Path("x") / "CHECKS.toml", results))  # noqa: S314 - written by us


def test_junit_is_what_its_readers_know() -> None:
    root = tree(GOOD, BAD, LOST, replace(GOOD, cached=True))
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= set(CHILDREN.get(element.tag, []))
        assert all(re.fullmatch(r"\d+\.\d+", element.attrib[name]) for name in {"time"} & set(element.attrib))
    counts = {"tests": "4", "failures": "1", "errors": "1", "time": "3.000"}
    assert root.attrib == counts
    assert root[0].attrib == counts | {"name": "CHECKS.toml", "skipped": "0"}
    assert [case.get("name") for case in root[0]] == ["good bf16", "bad auto", "lost auto", "good bf16"]
    assert "cached" in (root[0][3].findtext("system-out") or "")


def test_junit_holds_what_xml_can() -> None:
    failure = tree(BAD).find(".//failure")
    assert failure is not None
    assert failure.attrib == {"message": "plan: first.", "type": "plan"}
    assert failure.text == "plan: first.\nplan: a\ufffdb\ufffd[2J]]>&<script>|`\ufffd\n::error::"


def test_markdown_holds_no_markup_of_a_stranger() -> None:
    text = markdown([GOOD, BAD])
    lines = text.splitlines()
    assert lines[0] == "### 2 checks: 1 passed, 1 failed"
    assert lines[2:6] == [
        "| check | outtype | plan | convert | time |",
        "| --- | --- | --- | --- | --- |",
        "| good | bf16 | ok | ok | 1.2 s |",
        "| bad | auto | FAIL | - | 0.5 s |",
    ]
    told = lines[-1]
    assert told.startswith("- plan&#58; a") and not set("<>|`&\x1b") & set(re.sub(r"&#\d+;", "", told))
    assert "::error" not in text


def test_many_reasons_are_cut() -> None:
    many = replace(BAD, steps=(StepResult("plan", "fail", 0.5, tuple(f"r{i}" for i in range(50))),))
    assert markdown([many]).splitlines()[-1] == "- and 30 more"


def test_rows_have_the_steps_that_any_check_makes() -> None:
    assert header([GOOD, LOST]) == ["check", "outtype", "plan", "convert", "time"]
    assert rows([GOOD, LOST])[1] == ["lost", "auto", "ERROR", "", "0.0 s"]


def test_exit_codes_and_the_sentence() -> None:
    assert exit_code([GOOD]) == 0
    assert exit_code([GOOD, LOST]) == 4
    assert exit_code([LOST, BAD]) == 1
    assert summary([GOOD, replace(GOOD, cached=True), BAD, LOST]) == (
        "4 checks: 2 passed, 1 failed, 1 could not be made (1 cached)"
    )
    assert summary([GOOD]) == "1 check: 1 passed"
