"""Does this draft work with this target? Run the pair in llama.cpp and judge what happens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dspark_convert.errors import EnvironmentFault, InputError, UsageError
from dspark_convert.ggufio.split import named_set
from dspark_convert.runtime import DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT
from dspark_convert.runtime.guard import Outcome, run_job
from dspark_convert.runtime.library import Library, find_library
from dspark_convert.runtime.precheck import precheck
from dspark_convert.runtime.proof import RUN_CHECKS as PROOF_CHECKS
from dspark_convert.runtime.proof import Proof
from dspark_convert.runtime.report import Check, ValidationReport
from dspark_convert.runtime.server import ask_second_opinion, find_package
from dspark_convert.runtime.verdict import count_acceptance, judge_acceptance, judge_drafting, judge_lossless

#: no prompts file needs more; a device such as /dev/zero has no end
MAX_PROMPT_BYTES = 16 * 2**20

#: checks that need the models running, in the order in which they are told
RUN_CHECKS = ("load", "drafting", "acceptance", "lossless")


def validate(
    draft: Path,
    target: Path,
    *,
    reference: Path | None = None,
    target_reference: Path | None = None,
    server: bool = False,
    lib: Path | None = None,
    prompts: Sequence[str] | None = None,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    timeout: float = DEFAULT_TIMEOUT,
    memory: int | None = None,
    on_phase: Callable[[str], None] = lambda _phase: None,
) -> ValidationReport:
    """Check both files, then decode ``prompts`` (own texts if None) plainly and with the draft.

    ``reference``: the draft's checkpoint, which the file is then compared with (``proof``);
    ``target_reference``: the target's, to compare the features with as well. ``server``: ask xllamacpp's own
    server too. ``max_tokens`` tokens a prompt, ``timeout`` seconds (for the server again) and ``memory`` bytes
    (None: ``memory_limit``) for everything in llama.cpp, ``lib`` the library file or its directory. Raises
    InputError for files that are no GGUF or have the wrong role and for a checkpoint that cannot be computed,
    EnvironmentFault if there is no library that can run a draft, no PyTorch for a reference or no server.
    """
    proof = None if reference is None else Proof(draft, target, reference, target_reference)
    checks, shape = precheck(draft, target)
    run_checks = (*RUN_CHECKS, *(PROOF_CHECKS if proof else ()), *(("server",) if server else ()))
    library = find_library(lib) if shape else None
    if proof:
        on_phase("comparing the tensors")
        checks += proof.judge_files()
    if shape is None or library is None:
        return ValidationReport({}, (*checks, *_skipped(run_checks, "the files do not pass the checks before")))
    package = find_package(library) if server else None
    texts = list(default_prompts() if prompts is None else prompts)
    with tempfile.TemporaryDirectory(prefix="dspark-") as directory:
        job = {
            "library": str(library.path),
            "target": str(target.resolve()),
            "draft": str(draft.resolve()),
            "shape": asdict(shape),
            "prompts": texts,
            "max_tokens": max_tokens,
            "memory": memory_limit((draft, target)) if memory is None else memory,
            "record": {"directory": directory, "layers": proof.layers_to_record()} if proof else None,
        }
        outcome = run_job(job, timeout=timeout, on_phase=on_phase)
        if outcome.result is None:
            return ValidationReport(_describe(library, {}), (*checks, *_judge_failure(outcome, run_checks)))
        run = outcome.result
        proved: list[Check] = []
        parity = None
        if proof:
            proved, parity = proof.judge_run(Path(directory), len(texts), shape.drafts_per_block, run["taps"], on_phase)
    agrees = any(check.name == "parity" and check.status == "pass" for check in proved)
    holds = agrees and all(check.status != "fail" for check in checks)
    judged = (
        Check("load", "pass", f"llama.cpp runs the pair ({run['injection']} injection)"),
        judge_drafting(acceptance := count_acceptance(run["runs"], shape.drafts_per_block)),
        judge_acceptance(acceptance, run["runs"], parity_holds=holds),
        judge_lossless(run["runs"]),
    )
    lossless = judged[-1].status == "pass"
    if package:
        proved.append(ask_second_opinion(job, package, run, timeout=timeout, on_phase=on_phase))
    return ValidationReport(_describe(library, run), (*checks, *judged, *proved), acceptance, lossless, parity)


def memory_limit(files: Sequence[Path]) -> int:
    """Bytes that llama.cpp may allocate beside the mapped files: enough to hold all weights twice and more."""
    return 2 * sum(part.stat().st_size for path in files for part in named_set(path)) + 8 * 10**9


def default_prompts() -> list[str]:
    """The texts that lie beside this file, one a line."""
    return read_prompts(Path(__file__).with_name("prompts.txt"))


def read_prompts(path: Path) -> list[str]:
    """The prompts in ``path``, one a line, blank lines left out.

    Raises UsageError if there is no such file, InputError if it holds no text or no end,
    EnvironmentFault if it cannot be read.
    """
    if not path.exists() or path.is_dir():  # a pipe is as good as a file: --prompts <(command)
        raise UsageError(f"there is no prompts file {path}.")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PROMPT_BYTES + 1)
    except OSError as fault:  # that of reading names no file itself
        raise EnvironmentFault(f"the prompts file {path} cannot be read: {fault.strerror}.") from fault
    if len(data) > MAX_PROMPT_BYTES:
        raise InputError(f"{path} holds more than {MAX_PROMPT_BYTES // 2**20} MiB of prompts; give fewer.")
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as fault:
        raise InputError(f"{path} is not UTF-8 text (byte {fault.start}); save the prompts as UTF-8.") from fault
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise InputError(f"{path} holds no prompt; write one a line.")
    return prompts


def _judge_failure(outcome: Outcome, names: Sequence[str]) -> tuple[Check, ...]:
    """The checks of a run that ended early: what was reached passes, what stopped it fails."""
    reached = 0 if outcome.phase.startswith(("starting", "loading", "creating")) else 1
    failed = Check(names[reached], "fail", outcome.fault)
    passed = (Check("load", "pass", "llama.cpp loads the pair"),)[:reached]
    return (*passed, failed, *_skipped(names[reached + 1 :], "llama.cpp did not get that far"))


def _describe(library: Library, run: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: run[key] for key in ("model_params", "context_params", "injection") if key in run}
    return {"path": str(library.path), "source": library.source, **known}


def _skipped(names: Sequence[str], why: str) -> tuple[Check, ...]:
    return tuple(Check(name, "skip", why) for name in names)
