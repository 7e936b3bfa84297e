"""Breaks a good conversion with every mutant and asks both commands what they make of it.

A mutant is caught if ``dspark-validate --reference`` refuses it or fails a check of it, or if
``dspark-inspect --deep`` has an error or a warning about it; the good files have neither.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeVar

from dspark_convert.convert import Request, prepare, write
from dspark_convert.errors import InputError, UsageError
from dspark_convert.inspection import inspect_file
from dspark_convert.options import Options
from dspark_convert.runtime.guard import run_job
from dspark_convert.runtime.library import find_library
from dspark_convert.runtime.precheck import precheck
from dspark_convert.runtime.proof import Proof
from dspark_convert.runtime.recording import Recording, read_recording
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.validation import validate
from tests.mutations.copies import Copy, Mutant, read

OutType = Literal["f32", "f16", "bf16", "q8_0", "auto"]
Shared = Literal["omit", "include"]
SHARED: tuple[Shared, ...] = ("omit", "include")
Item = TypeVar("Item")
Result = TypeVar("Result")

#: mutants at once: while one waits for its child, others compute
WORKERS = 3
TIMEOUT = 120.0

#: what a check says where the machine failed, not the file
NO_VERDICT = re.compile("ended with code|seconds allowed ran out|SIGKILL")

#: the name under which a refusal stands among the checks
REFUSED = "refused"


@dataclass(frozen=True)
class Verdict:
    """``inspect``: rule -> severity of what was told; ``failed``: check -> why."""

    name: str
    inspect: dict[str, str]
    failed: dict[str, str]

    @property
    def errors(self) -> list[str]:
        """What inspect calls an error."""
        return [rule for rule, severity in self.inspect.items() if severity == "error"]

    @property
    def caught(self) -> bool:
        return bool(self.inspect or self.failed)

    def line(self, width: int) -> str:
        told = [f"inspect {rule} ({severity})" for rule, severity in self.inspect.items()]
        told += [f"validate {check}" for check in self.failed]
        how = "; ".join(told) or "NOT CAUGHT"
        why = next(iter(self.failed.values()), "")
        return f"{self.name:{width}}  {how}{': ' if why else ''}{why:.90}"


@dataclass(frozen=True)
class Bench:
    """A checkpoint ``reference``, good conversions of it by base name, targets by name, and texts to run."""

    root: Path
    reference: Path
    target_reference: Path | None
    good: Mapping[str, Path]
    targets: dict[str, Path]
    prompts: Sequence[str]
    max_tokens: int

    def judge(self, name: str, draft: Path, target: str = "right", *, run: bool = True) -> Verdict:
        """``run``: in llama.cpp too, and not by what stands in the files alone."""
        try:
            findings = inspect_file(draft, deep=True).findings
            told: dict[str, str] = {
                finding.rule: finding.severity for finding in findings if finding.severity != "info"
            }
        except InputError:
            told = {REFUSED: "error"}
        checks = self._run if run else self._compare_files
        return Verdict(name, told, self._validate(draft, self.targets[target], checks))

    def _validate(self, draft: Path, target: Path, checks: Callable[[Path, Path], Sequence[Check]]) -> dict[str, str]:
        try:
            failed = {check.name: check.detail for check in checks(draft, target) if check.status == "fail"}
        except (InputError, UsageError) as fault:
            return {REFUSED: str(fault)}
        # Not the mutant's doing: that would count as caught whatever it is.
        assert not any(NO_VERDICT.search(detail) for detail in failed.values()), failed
        return failed

    def _run(self, draft: Path, target: Path) -> Sequence[Check]:
        """Every check of ``dspark-validate --reference``."""
        return validate(
            draft,
            target,
            reference=self.reference,
            target_reference=self.target_reference,
            prompts=self.prompts,
            max_tokens=self.max_tokens,
            timeout=TIMEOUT,
        ).checks

    def _compare_files(self, draft: Path, target: Path) -> Sequence[Check]:
        """Those of them that come before the run."""
        checks, _ = precheck(draft, target)
        return [*checks, *Proof(draft, target, self.reference, self.target_reference).judge_files()]

    def judge_all(
        self, mutants: Iterable[Mutant], outtype: str = "F32", run: Collection[str] | None = None
    ) -> list[Verdict]:
        """The verdicts on all mutants, in their order; the good files are F32, the mutants ``outtype``.

        Of the mutants only those named in ``run`` run in llama.cpp; all if None.
        """

        def judge_mutant(item: tuple[Mutant, Copy]) -> Verdict:
            mutant, copy = item
            with tempfile.TemporaryDirectory(dir=self.root) as directory:
                path = copy.write(
                    Path(directory) / "dspark-mutant.gguf", outtype, heads="Q8_0" if outtype == "Q4_0" else None
                )
                runs = run is None or mutant.name in run
                return self.judge(mutant.name, path, mutant.target, run=runs)

        return in_parallel(judge_mutant, self.copies(mutants))

    def copies(self, mutants: Iterable[Mutant]) -> Iterable[tuple[Mutant, Copy]]:
        """Each mutant and the changed copy of its base."""
        bases = {base: read(path) for base, path in self.good.items()}
        for mutant in mutants:
            copy = bases[mutant.base].copy()
            mutant.change(copy)
            yield mutant, copy

    def record(self, draft: Path) -> list[Recording]:
        """All that llama.cpp computes with ``draft`` on the prompts."""
        _, shape = precheck(draft, self.targets["right"])
        assert shape is not None
        with tempfile.TemporaryDirectory(dir=self.root) as directory:
            job = {
                "library": str(find_library().path),
                "target": str(self.targets["right"]),
                "draft": str(draft),
                "shape": asdict(shape),
                "prompts": list(self.prompts),
                "max_tokens": self.max_tokens,
                "memory": None,
                "record": {"directory": directory, "layers": [0, 1, 2, 3]},
            }
            outcome = run_job(job, timeout=TIMEOUT)
            assert outcome.result is not None, outcome.fault
            return [read_recording(Path(directory), number) for number in range(len(self.prompts))]


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``function`` of every item, in order, ``WORKERS`` at once."""
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(function, items))


def convert(draft: Path, target: Path, outfile: Path, outtype: OutType, shared: Shared) -> Path:
    """A good file, as ``dspark-convert`` makes it."""
    options = Options(outtype=outtype, shared_tensors=shared)
    request = Request(draft, target, None, outfile, options)
    write(prepare(request), request)
    return outfile


def table(verdicts: Sequence[Verdict]) -> str:
    """One line a mutant: what is broken, who tells, and how; the score last."""
    width = max(len(verdict.name) for verdict in verdicts)
    caught = sum(verdict.caught for verdict in verdicts)
    score = f"{caught} of {len(verdicts)} mutants caught: {caught / len(verdicts):.1%}"
    return "\n".join([*(verdict.line(width) for verdict in verdicts), score])
