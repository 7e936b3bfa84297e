"""Reads a CHECKS.toml; everything that is wrong with it is told together, each with its line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dspark_convert.check.checks import PLACE, Case, Check, Expected, Step, is_gguf
from dspark_convert.check.lines import Place, line_of
from dspark_convert.check.values import CHECK, EXPECT, Reader, Wrong
from dspark_convert.errors import InputError, UsageError
from dspark_convert.findings import Finding, error
from dspark_convert.source.hub_id import parse_hub_file, parse_hub_id
from dspark_convert.words import shown

#: no file of checks needs more
MAX_BYTES = 2**20

#: expectations, and the steps that look at them
LOOKED_AT: dict[str, tuple[Step, ...]] = {
    **dict.fromkeys(("block_size", "taps", "tensors", "max_size"), ("plan", "inspect")),
    **dict.fromkeys(("plan", "plan_sha256"), ("plan",)),
    **dict.fromkeys(("acceptance", "mean_accepted_length", "parity"), ("validate",)),
    "golden": ("diff",),
}


def read_checks(path: Path, *, plans_to_write: bool = False) -> list[Check]:
    """The checks in ``path``, whose relative paths start at its directory. ``plans_to_write``: golden plans need not be
    there yet.

    Raises UsageError if there is no such file, InputError with a finding for each mistake.
    """
    if not path.is_file():
        raise UsageError(f"there is no file of checks {path}; dspark-check init SOURCE writes a first one.")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"{path} is larger than {MAX_BYTES // 2**20} MiB, which no file of checks is.")
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
        document = tomllib.loads(text)
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}: this is not UTF-8 text; save the file as UTF-8.") from fault
    except tomllib.TOMLDecodeError as fault:
        # "… (at line 3, column 9)" or "… (at end of document)"
        raise InputError(f"{path} is no TOML: {fault}.") from fault
    except ValueError as fault:  # an integer of more digits than Python reads
        raise InputError(f"{path} is no TOML: a number in it has thousands of digits.") from fault
    except RecursionError:
        raise InputError(f"{path} is no file of checks: its tables are nested without end.") from None
    return _Reading(path, text, plans_to_write).checks(document)


class _Reading:
    """One file while it is read, with what was found wrong so far."""

    def __init__(self, path: Path, text: str, plans_to_write: bool) -> None:
        self.path, self.text, self.plans_to_write = path, text, plans_to_write
        self.root = path.resolve().parent
        self.findings: list[Finding] = []

    def checks(self, document: Mapping[str, Any]) -> list[Check]:
        for key in document.keys() - {"check"}:
            self.unknown((key,), {"check"})
        tables = document.get("check", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self.wrong(("check",), "check must be a list of tables, each under [[check]]")
            tables = []
        elif not tables and not self.findings:
            self.tell("checks-key", (), "it holds no check", "write one under [[check]]")
        made = [self.check(index, table) for index, table in enumerate(tables)]
        seen: dict[str, int] = {}
        for index, check in enumerate(made):
            if check is not None and seen.setdefault(check.name.lower(), index) != index:
                self.wrong(("check", index, "name"), f"the name {check.name} is another check's already")
        if self.findings:
            self.findings.sort(key=lambda finding: int(finding.where.rpartition(":")[2]))
            things = "1 mistake" if len(self.findings) == 1 else f"{len(self.findings)} mistakes"
            raise InputError(f"nothing was checked: {self.path} holds {things}.", findings=self.findings)
        return [check for check in made if check is not None]

    def check(self, index: int, table: Mapping[str, Any]) -> Check | None:
        """None if something is wrong with it."""
        before, place = len(self.findings), ("check", index)
        values = self.table(place, table, CHECK, other={"expect"})
        expect = table.get("expect", {})
        if not isinstance(expect, dict):
            self.wrong((*place, "expect"), "expect must be a table, [check.expect]")
            expect = {}
        expected = self.table((*place, "expect"), expect, EXPECT)
        for key in ("name", "source"):
            if key not in table:
                self.tell("checks-key", place, f"the check has no {key}", "add it")
        for key in ("source", "target", "target_gguf", "prompts", "reference"):
            if values.get(key) is not None:
                values[key] = self.located((*place, key), values[key], hub=key in ("source", "target"))
        for key in ("plan", "golden"):
            if key in expected:
                expected[key] = str(self.root / expected[key])
        if len(self.findings) > before:
            return None
        target = values.get("target")
        if target is not None and target.suffix == ".gguf" and target.is_absolute():
            values.setdefault("target_gguf", target)
        source: Path = values["source"]
        if source.is_dir():
            values.setdefault("reference", source)
        values.setdefault("steps", ("inspect",) if is_gguf(source) else ("plan",))
        check = Check(**values, expected=Expected(**expected), line=line_of(self.text, place))
        for key in ("prompts", "reference"):
            if table.get(key) and "validate" not in check.steps:
                self.tell("checks-key", (*place, key), f"{key} is looked at by the step validate", "add it")
        self.judge(place, check, expected)
        return check

    def table(
        self, place: Place, table: Mapping[str, Any], readers: Mapping[str, Reader], other: set[str] | None = None
    ) -> dict[str, Any]:
        values = {}
        for key, value in table.items():
            if key in readers:
                try:
                    values[key] = readers[key](value)
                except Wrong as fault:
                    self.wrong((*place, key), f"{key} = {shown(value)} must be {fault}")
            elif key not in (other or ()):
                self.unknown((*place, key), set(readers) | (other or set()))
        return values

    def located(self, place: Place, value: str, *, hub: bool) -> Path:
        """The file or directory, or the hub id: one of a directory that lies here is a missing file."""
        path = self.root / value
        if path.exists():
            return path
        named = Path(value)
        if hub and not (self.root / named.parts[0]).exists():
            if parse_hub_id(named) is not None:
                return named
            if place[-1] == "source" and parse_hub_file(named) is not None:
                return named
        key = place[-1]
        self.tell("checks-file", place, f"{key} {shown(value)} is not there", "paths start at the file's directory")
        return path

    def judge(self, place: Place, check: Check, expected: Mapping[str, Any]) -> None:
        """What does not fit together."""
        steps, file = check.steps, not check.is_checkpoint
        if "convert" in steps and check.target is None and check.target_gguf is None and not file:
            self.tell("checks-key", place, "the step convert needs a tokenizer", "add target")
        if "validate" in steps and check.target_gguf is None:
            self.tell("checks-key", place, "the step validate runs the target", "add target_gguf, a file")
        if "validate" in steps and check.dialect != "dflash":
            self.wrong((*place, "dialect"), f"the step validate cannot run {check.dialect}, which no llama.cpp loads")
        if {"inspect", "validate"} & {*steps} and "convert" not in steps and not file:
            self.tell("checks-key", place, "inspect and validate look at a file, and the source is none", "add convert")
        if "diff" in steps and check.expected.golden is None:
            self.tell("checks-key", place, "the step diff needs a file to compare with", "add golden to [check.expect]")
        if not check.is_checkpoint and not check.source.is_absolute() and set(steps) != {"inspect"}:
            self.tell("checks-value", place, "of a GGUF on the hub only the header is read", 'use steps = ["inspect"]')
        for key in expected:
            looking = LOOKED_AT.get(key, steps)
            if not {*looking} & {*steps}:
                told = f"{key} is looked at by the step {' or '.join(looking)}"
                self.tell("checks-key", (*place, "expect", key), told, "add it")
        if check.expected.parity is not None and check.reference is None:
            self.wrong((*place, "expect", "parity"), "parity needs a reference, the directory of a checkpoint")
        for key in ("plan", "golden"):
            text = expected.get(key)
            if text is None:
                continue
            if len(check.outtypes) > 1 and PLACE not in text:
                self.wrong((*place, "expect", key), f"{key} must have {PLACE} in it: each of the outtypes has its own")
            paths = [getattr(Case(check, outtype), key) for outtype in check.outtypes]
            missing = next((path for path in paths if not path.is_file()), None)
            if missing is not None and not (key == "plan" and self.plans_to_write):
                self.tell("checks-file", (*place, "expect", key), f"{key} {missing} is not there", "write it first")
        if check.expected.plan_sha256 is not None and len(check.outtypes) > 1:
            self.wrong((*place, "expect", "plan_sha256"), "plan_sha256 is of one outtype, and there are more")

    def unknown(self, place: Place, known: set[str]) -> None:
        key = str(place[-1])
        near = get_close_matches(key, known, 1)
        fix = f"did you mean {near[0]}?" if near else f"these are known: {', '.join(sorted(known))}"
        self.tell("checks-key", place, f"{shown(key)} is not known", fix)

    def wrong(self, place: Place, message: str) -> None:
        self.tell("checks-value", place, message, "correct it")

    def tell(self, rule: str, place: Place, message: str, fix: str) -> None:
        where = f"{self.path}:{line_of(self.text, place) if place else 1}"
        if rule == "checks-key":
            self.findings.append(error("checks-key", where, f"{message}.", fix))
        elif rule == "checks-file":
            self.findings.append(error("checks-file", where, f"{message}.", fix))
        else:
            self.findings.append(error("checks-value", where, f"{message}.", fix))
