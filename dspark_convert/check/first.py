"""dspark-check init: a first file of checks for a draft, with its golden plan, by headers alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_convert.check.checks import PLACE, Case, Check, Step
from dspark_convert.check.golden import plan_text
from dspark_convert.check.planning import planned, request_of
from dspark_convert.check.values import Wrong
from dspark_convert.check.values import name as read_name
from dspark_convert.errors import UsageError
from dspark_convert.options import Outtype
from dspark_convert.source.hub_id import parse_hub_id

HEAD = """\
# Checks of dspark-check: run `dspark-check {file}`. Every key: docs/check.md.

"""


@dataclass(frozen=True)
class First:
    """``texts``: path -> what to write there; ``steps`` that the check makes, and the plan's digest."""

    texts: dict[Path, str]
    steps: tuple[Step, ...]
    tensors: int
    nbytes: int


def first_checks(
    source: Path, target: Path | None, outtypes: Sequence[Outtype], file: Path, *, name: str | None = None
) -> First:
    """The first file of checks for ``source``, to be written to ``file``, and its golden plans beside it.

    Raises UsageError for a name that no check can have, and as ``convert.prepare`` does.
    """
    try:
        name = read_name(name or _name(source))
    except Wrong as fault:
        raise UsageError(f"--name {name} must be {fault}.") from None
    is_gguf_target = target is not None and target.is_file()
    steps: tuple[Step, ...] = ("plan",)
    if is_gguf_target and source.exists():
        steps = ("plan", "convert", "inspect", "validate")
    root = file.resolve().parent
    check = Check(
        name=name,
        source=_absolute(source),
        steps=steps,
        target=None if target is None else _absolute(target),
        target_gguf=_absolute(target) if target is not None and is_gguf_target else None,
        outtypes=tuple(outtypes),
    )
    plans = {case.outtype: planned(request_of(case)) for case in check.cases}
    texts = {root / "plans" / f"{name}-{outtype}.json": plan_text(p["plan"]) for outtype, p in plans.items()}
    first = next(iter(plans.values()))
    texts = {root / file.name: HEAD.format(file=file.name) + _toml(check, first, root), **texts}
    return First(texts, steps, len(first["plan"]["tensors"]), first["bytes"])


def _toml(check: Check, plan: dict[str, Any], root: Path) -> str:
    draft = plan["draft"]
    warnings = sorted({f["rule"] for f in plan["findings"] if f["severity"] == "warning"})
    lines = ["[[check]]", f"name = {_quoted(check.name)}", f"source = {_quoted(_named(check.source, root))}"]
    if check.target is not None:
        lines.append(f"target = {_quoted(_named(check.target, root))}")
    lines += [
        f"outtypes = {_quoted(list(check.outtypes))}",
        f"steps = {_quoted(list(check.steps))}",
        "",
        "[check.expect]",
    ]
    if draft is not None:
        lines += [f"block_size = {draft['block_size']}", f"taps = {json.dumps(list(draft['target_layers']))}"]
    lines.append(f"tensors = {len(plan['plan']['tensors'])}")
    if len(check.outtypes) == 1:
        lines.append(f"max_size = {plan['bytes']}")
    lines.append(f"plan = {_quoted(f'plans/{check.name}-{PLACE}.json')}")
    if warnings:
        lines.append(f"warnings = {_quoted(warnings)}")
    return "\n".join(lines) + "\n"


def _name(source: Path) -> str:
    hub_id = parse_hub_id(source)
    last = hub_id.place.partition("/")[2] if hub_id else source.resolve().name
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", last.removesuffix(".gguf")).strip("-.+")[:100] or "draft"


def _absolute(path: Path) -> Path:
    """A hub id stays as it is."""
    return path.resolve() if path.exists() else path


def _named(path: Path, root: Path) -> str:
    return os.path.relpath(path, root) if path.is_absolute() else str(path)


def _quoted(value: Any) -> str:
    """JSON's texts and lists are TOML's, but for characters that TOML wants escaped too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def golden_plans(cases: Sequence[Case]) -> dict[Path, str]:
    """What the golden plans of ``cases`` would say if they were written now; raises as ``convert.prepare`` does."""
    return {case.plan: plan_text(planned(request_of(case))["plan"]) for case in cases if case.plan is not None}


def require_free(paths: Sequence[Path]) -> None:
    """Raises UsageError if one is there already."""
    taken = next((path for path in paths if path.exists()), None)
    if taken is not None:
        raise UsageError(f"{taken} is there already; give another --output, or --force to replace it.")
