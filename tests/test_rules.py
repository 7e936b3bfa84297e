"""The catalogue of rules is what the source tells, each is documented, and each is provoked by a test."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import dspark_convert
from dspark_convert.rules import Rule, catalogue, find_rule
from tests.told_rules import SEVERITIES, named, told

ROOT = Path(__file__).parent.parent
RULES = {rule.id: rule for group in catalogue() for rule in group.rules}

#: ids that are made at run time, and the rules of their own that some of them have
COMPUTED = {"*-overflow": {"f16-overflow"}}


def in_source() -> dict[str, set[str]]:
    """Rule -> its severities, as the source tells them."""
    found: dict[str, set[str]] = {}
    for rule, severity in told(Path(dspark_convert.__file__).parent):
        for name in {rule} | COMPUTED.get(rule, set()):
            found.setdefault(name, set()).add(severity)
    return found


def test_every_rule_that_is_told_is_in_the_catalogue_and_no_other() -> None:
    source = {(rule, severity) for rule, severities in in_source().items() for severity in severities}
    documented = {(rule.id, severity) for rule in RULES.values() for severity in rule.severities}
    assert sorted(source - documented) == [], "undocumented: add them to dspark_convert/rules/*.toml"
    assert sorted(documented - source) == [], "no longer told"


def test_no_id_stands_in_two_groups() -> None:
    assert len(RULES) == sum(len(group.rules) for group in catalogue())


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_is_told_in_sentences(rule: Rule) -> None:
    for text in (rule.means, rule.why, rule.fix):
        assert text.endswith((".", ")"))
        assert not text.startswith(" ")
    assert rule.example
    assert not rule.example.endswith(".")
    assert list(rule.severities) == sorted(set(rule.severities), key=rule.severities.index)
    assert set(rule.severities) <= set(SEVERITIES)


def test_every_error_and_warning_is_provoked_somewhere() -> None:
    texts = named(Path(__file__).parent, but=Path(__file__))
    unseen = [
        rule.id
        for rule in RULES.values()
        if rule.severities[0] != "info" and not any(fnmatchcase(text, rule.id) for text in texts)
    ]
    assert unseen == []


def test_computed_ids_are_found() -> None:
    overflow, f16 = find_rule("mxfp4-overflow"), find_rule("f16-overflow")
    assert overflow is not None and overflow.id == "*-overflow"
    assert f16 is not None and f16.id == "f16-overflow"
    assert find_rule("validate-load") is RULES["validate-*"]
    assert find_rule("no-such-rule") is None


def test_the_page_documents_each() -> None:
    lines = (ROOT / "docs" / "rules.md").read_text("utf-8").splitlines()
    assert [line[4:] for line in lines if line.startswith("### ")] == list(RULES)


def test_an_id_that_cannot_be_read_is_no_quiet_gap(tmp_path: Path) -> None:
    head = "from dspark_convert.findings import error, warning as warn\n"
    source = tmp_path / "a.py"
    source.write_text(f"{head}RULE = 'one'\nerror(RULE, '', '')\nwarn(f'{{x}}-two', '', '')\nerror(y.rule, '', '')\n")
    assert set(told(tmp_path)) == {("one", "error"), ("*-two", "warning")}
    source.write_text(f"{head}tell = warning if x else error\ntell('three', '', '')\n")
    assert set(told(tmp_path)) == {("three", "error"), ("three", "warning")}
    source.write_text(f"{head}error(choose(), '', '')\n")
    with pytest.raises(ValueError, match="cannot be read"):
        told(tmp_path)
