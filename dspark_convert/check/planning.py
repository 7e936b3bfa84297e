"""The child process that plans a conversion: a request in JSON as argument, a document in JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from dspark_convert.check.checks import Case
from dspark_convert.check.golden import golden_plan
from dspark_convert.convert import Request, prepare
from dspark_convert.document import plain
from dspark_convert.errors import DsparkError, EnvironmentFault
from dspark_convert.options import Options


def request_of(case: Case) -> dict[str, Any]:
    """What ``main`` takes."""
    check = case.check
    is_file = check.target is not None and check.target == check.target_gguf
    return {
        "model": str(check.source),
        "target_dir": None if check.target is None or is_file else str(check.target),
        "target_gguf": None if check.target_gguf is None else str(check.target_gguf),
        "options": {
            "outtype": case.outtype,
            "experts": check.experts,
            "dequantize": check.dequantize,
            "dialect": check.dialect,
            "shared_tensors": check.shared_tensors,
        },
    }


def planned(request: Mapping[str, Any]) -> dict[str, Any]:
    """The golden plan, the draft's meaning, the findings and the bytes of all tensors; raises as ``prepare``."""
    target_dir, target_gguf = (request[key] and Path(request[key]) for key in ("target_dir", "target_gguf"))
    asked = Request(Path(request["model"]), target_dir, target_gguf, None, Options(**request["options"]))
    plan = prepare(asked, dry_run=True).plan
    return {
        "plan": golden_plan(plan),
        "draft": plan.draft.to_json() if plan.draft else None,
        "findings": [finding.to_json() for finding in plan.findings],
        "bytes": sum(job.nbytes for job in plan.tensors),
    }


def main() -> None:
    try:
        with redirect_stdout(sys.stderr):
            document = planned(json.loads(sys.argv[1]))
        code = 0
    except DsparkError as fault:
        document, code = _failure(fault), fault.exit_code
    except (OSError, MemoryError) as fault:
        told = EnvironmentFault(f"the plan cannot be made: {fault or type(fault).__name__}.")
        document, code = _failure(told), told.exit_code
    json.dump(plain(document), sys.stdout)
    sys.stdout.flush()
    sys.exit(code)


def _failure(fault: DsparkError) -> dict[str, Any]:
    """As every command prints it with --json."""
    return {
        "error": {"message": str(fault), "exit_code": fault.exit_code},
        "findings": [finding.to_json() for finding in fault.findings],
    }
