"""Compares what a step found with what the check expects; each returns the reasons why it does not pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dspark_convert.check.checks import Case, Expected
from dspark_convert.check.golden import differences, plan_hash


def judge_plan(case: Case, document: Mapping[str, Any]) -> list[str]:
    """``document`` as ``planning.planned`` makes it. Raises InputError if the golden plan is none."""
    expected = case.check.expected
    plan = document["plan"]
    reasons = [*judge_findings(document["findings"], expected)]
    reasons += judge_draft(expected, document["draft"], len(plan["tensors"]), document["bytes"])
    if case.plan is not None:
        reasons += [f"{case.plan.name}: {line}" for line in differences(case.plan, plan)]
    if expected.plan_sha256 is not None:
        reasons += _equal("plan_sha256", expected.plan_sha256, plan_hash(plan))
    return reasons


def judge_draft(expected: Expected, draft: Mapping[str, Any] | None, tensors: int, nbytes: int) -> list[str]:
    """``draft``: its meaning as in the documents of the commands; ``nbytes`` of all ``tensors``."""
    if draft is None:
        return ["what the draft means cannot be read."]
    reasons = _equal("block size", expected.block_size, draft["block_size"])
    reasons += _equal("taps", None if expected.taps is None else list(expected.taps), draft["target_layers"])
    reasons += _equal("number of tensors", expected.tensors, tensors)
    if expected.max_size is not None and nbytes > expected.max_size:
        reasons.append(f"the tensors take {nbytes:,} bytes, more than the {expected.max_size:,} that are allowed.")
    return reasons


def judge_findings(findings: Iterable[Mapping[str, str]], expected: Expected) -> Iterator[str]:
    """Errors always count, warnings unless they are expected."""
    for finding in findings:
        severity, rule = finding["severity"], finding["rule"]
        if severity == "error" or (severity == "warning" and rule not in expected.warnings):
            where = "" if finding["where"] in finding["message"] else f"{finding['where']}: "
            yield f"{severity}: {where}{finding['message'].rstrip('.')} [{rule}]"


def judge_validation(expected: Expected, report: Mapping[str, Any]) -> list[str]:
    """``report``: the document of ``dspark-validate --json``."""
    reasons = [f"{check['name']}: {check['detail']}" for check in report["checks"] if check["status"] == "fail"]
    acceptance = report["acceptance"]
    if acceptance is not None:
        reasons += _shares(expected.acceptance, acceptance["drafted"], acceptance["accepted"])
        length, least = acceptance["mean_accepted_length"], expected.mean_accepted_length
        if least is not None and length < least:
            reasons.append(f"the mean accepted length is {length:.2f}, less than the {least:.2f} that are expected.")
    if report["parity"] is not None and expected.parity is not None:
        for compared in report["parity"]["positions"]:
            found = compared["relative"]
            if found is None or not found <= expected.parity:
                at = f"position {compared['position']}"
                value = "not a number" if found is None else f"{found:.2g}"
                reasons.append(f"parity at {at} is {value}, more than the {expected.parity:.2g} that are allowed.")
    if not reasons and any(check["status"] != "pass" for check in report["checks"]):
        reasons += [f"{check['name']}: {check['detail']}" for check in report["checks"] if check["status"] == "skip"]
    return reasons


def _shares(least: Sequence[float], drafted: Sequence[int], accepted: Sequence[int]) -> Iterator[str]:
    if len(least) > len(drafted):
        yield f"acceptance is expected at {len(least)} positions, and the draft has {len(drafted)}."
    for position, (wanted, of, found) in enumerate(zip(least, drafted, accepted, strict=False)):
        share = found / of if of else 0.0
        if share < wanted:
            yield f"acceptance at position {position} is {share:.3f} ({found} of {of}), less than {wanted:.3f}."


def _equal(what: str, wanted: Any, found: Any) -> list[str]:
    return [] if wanted is None or wanted == found else [f"{what} is {found}, expected is {wanted}."]
