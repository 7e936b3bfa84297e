"""The findings of an inspection as SARIF 2.1.0, which CIs and code hosts read.

Written from the standard (OASIS, "Static Analysis Results Interchange Format Version 2.1.0").
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dspark_convert import __version__
from dspark_convert.findings import Finding, Severity
from dspark_convert.inspection import Inspection
from dspark_convert.rules import find_rule

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: Mapping[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def of_inspection(inspection: Inspection) -> dict[str, Any]:
    """The SARIF log of one file or checkpoint."""
    kinds = (inspection.metadata, {row.name for row in inspection.tensors})
    return _log(inspection.path, inspection.findings, *kinds, size=inspection.nbytes)


def of_failure(path: Path, message: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """The log of a file that could not be inspected, and what was found until then."""
    log = _log(path, findings, (), ())
    notification = {"level": "error", "message": {"text": message}, "locations": [_location(path)]}
    log["runs"][0]["invocations"] = [
        {"executionSuccessful": False, "toolExecutionNotifications": [notification]},
    ]
    return log


def _log(
    path: Path, findings: Sequence[Finding], keys: Container[str], tensors: Container[str], size: int | None = None
) -> dict[str, Any]:
    told = list(dict.fromkeys(finding.rule for finding in findings))
    artifact: dict[str, Any] = {"location": {"uri": _uri(path)}, "roles": ["analysisTarget"]}
    if size is not None:
        artifact["length"] = size
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "dspark-inspect",
                        "version": __version__,
                        "rules": [_rule(rule, findings) for rule in told],
                    }
                },
                "invocations": [{"executionSuccessful": True}],
                "artifacts": [artifact],
                "results": [_result(path, finding, told.index(finding.rule), keys, tensors) for finding in findings],
                "columnKind": "unicodeCodePoints",
            }
        ],
    }


def _rule(rule: str, findings: Sequence[Finding]) -> dict[str, Any]:
    known = find_rule(rule)
    severity = next(finding.severity for finding in findings if finding.rule == rule)
    entry: dict[str, Any] = {"id": rule, "defaultConfiguration": {"level": LEVELS[severity]}}
    if known is not None:
        entry["shortDescription"] = {"text": known.means.replace("`", "")}
        entry["fullDescription"] = {"text": f"{known.means} {known.why}".replace("`", "")}
        help_text = f"{known.why} {known.fix}"
        entry["help"] = {"text": help_text.replace("`", ""), "markdown": help_text}
        entry["defaultConfiguration"] = {"level": LEVELS[known.severities[0]]}
    return entry


def _result(path: Path, finding: Finding, index: int, keys: Container[str], tensors: Container[str]) -> dict[str, Any]:
    where = finding.where
    kind = "tensor" if where in tensors else "key" if where in keys else "place"
    fix = f" To do: {finding.fix}." if finding.fix else ""
    text = finding.message if where in finding.message else f"{where}: {finding.message}"
    # The same finding in the next run of a CI, even if the numbers in its message differ.
    fingerprint = hashlib.sha256(f"{finding.rule}\0{where}".encode(errors="backslashreplace")).hexdigest()
    place = _location(path) | {"logicalLocations": [{"fullyQualifiedName": where, "kind": kind}]}
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": text + fix},
        "locations": [place],
        "partialFingerprints": {"ruleAndPlace/v1": fingerprint},
    }


def _location(path: Path) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(path), "index": 0}}}


def _uri(path: Path) -> str:
    """Relative paths stay relative, as code hosts want them."""
    return path.as_uri() if path.is_absolute() else quote(os.fsencode(path))
