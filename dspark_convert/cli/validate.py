"""dspark-validate: run a draft with its target in llama.cpp and say whether it works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_convert.cli.output import SENTENCE_WIDTH, Output
from dspark_convert.cli.phases import phases
from dspark_convert.cli.runner import LibraryOption, MemoryOption, TimeoutOption, VersionFlag, run
from dspark_convert.findings import error
from dspark_convert.runtime import DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT

if TYPE_CHECKING:
    from dspark_convert.runtime.parity_verdict import Parity
    from dspark_convert.runtime.report import Acceptance, ValidationReport


def validate_command(
    draft: Annotated[Path, typer.Argument(metavar="DRAFT.gguf", help="The draft.")],
    target: Annotated[Path, typer.Option("--target", metavar="TARGET.gguf", help="The model that it drafts for.")],
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference", metavar="DIR", help="The draft's checkpoint, or its hub id: does the file compute the same?"
        ),
    ] = None,
    target_reference: Annotated[
        Path | None,
        typer.Option("--target-reference", metavar="DIR", help="The target's checkpoint: are its features the same?"),
    ] = None,
    server: Annotated[
        bool, typer.Option("--server", help="Ask xllamacpp's own server too: does it write and accept the same?")
    ] = False,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help="Prompts, one a line (default: built-in texts).")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=2, help="Tokens to decode for each prompt.")
    ] = DEFAULT_MAX_TOKENS,
    lib: LibraryOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    memory: MemoryOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    version: VersionFlag = False,  # noqa: ARG001 - handled by its callback
) -> int:
    """Run DRAFT.gguf with its target in llama.cpp: does it load, is the text unchanged, what is accepted?

    With --reference also: does it compute what its checkpoint computes, at every position of a block?

    Exit code 0: it works; 1: something is wrong with the pair; 3: a file cannot be used; 4: there is no
    llama.cpp library that runs DSpark drafts.
    """
    from dspark_convert.errors import UsageError
    from dspark_convert.runtime.validation import read_prompts, validate

    if target_reference is not None and reference is None:
        raise UsageError("--target-reference adds to a comparison with --reference DIR: give that too.")
    out = Output(json=json, quiet=quiet)
    texts = None if prompts is None else read_prompts(prompts)
    reference = _on_disk(reference, draft, target, lib, out)
    with phases(out) as on_phase:
        report = validate(
            draft,
            target,
            reference=reference,
            target_reference=target_reference,
            server=server,
            lib=lib,
            prompts=texts,
            max_tokens=max_tokens,
            timeout=timeout,
            memory=None if memory is None else int(memory * 1e9),
            on_phase=on_phase,
        )
    show_report(out, report)
    if reference is None:
        out.human("what the file computes was not compared with its checkpoint: --reference DIR does that")
    out.json(report.to_json())
    return 0 if report.passed else 1


def _on_disk(reference: Path | None, draft: Path, target: Path, lib: Path | None, out: Output) -> Path | None:
    """The directory of the draft's checkpoint, fetched if it lies on the hub."""
    from dspark_convert.source.hub_id import parse_hub_id

    if reference is None or parse_hub_id(reference) is None:
        return reference
    from dspark_convert.remote import local_reference
    from dspark_convert.runtime.library import find_library
    from dspark_convert.runtime.precheck import precheck
    from dspark_convert.runtime.proof import require_packages

    # What stops the run is told before gigabytes are fetched.
    require_packages()
    precheck(draft, target)
    find_library(lib)
    return local_reference(reference, draft, out)


def show_report(out: Output, report: ValidationReport) -> None:
    """The report for a reader, on stdout; with --quiet only what failed, on stderr."""
    if out.quiet:
        failed = [check for check in report.checks if check.status == "fail"]
        out.findings([error(f"validate-{check.name}", check.name, check.detail) for check in failed])
        return
    if report.library:
        out.fields([("library", f"{report.library['path']} ({report.library['source']})")])
    out.table(("check", "status", "found"), [(c.name, c.status, c.detail) for c in report.checks], limit=SENTENCE_WIDTH)
    if report.acceptance:
        out.human("")
        _show_positions(out, report.acceptance, report.parity)
        out.human(f"mean accepted length: {report.acceptance.mean_accepted_length:.2f} tokens a round")
    for cause in report.parity.suspects if report.parity else ():
        out.human(f"likely: {cause}")
    for note in report.parity.notes if report.parity else ():
        out.human(f"note: {note}")


def _show_positions(out: Output, acceptance: Acceptance, parity: Parity | None) -> None:
    """One line a draft position: what was accepted, and how far the logits are from the checkpoint's."""
    headers = ["position", "drafted", "accepted", "share", "if all before"]
    rows: list[list[object]] = []
    for position, drafted in enumerate(acceptance.drafted):
        conditional = acceptance.conditional_share(position)
        given = "-" if conditional is None else f"{conditional:.3f}"
        rows.append([position, drafted, acceptance.accepted[position], f"{acceptance.share(position):.3f}", given])
    if parity and parity.held:
        headers += ["difference", "same token"]
        for row, compared in zip(rows, parity.held.positions, strict=False):
            row += [f"{compared.relative:.1e}", f"{compared.argmax_agree:.1%}"]
    if parity and parity.unrounded:
        headers.append("unrounded")
        for row, compared in zip(rows, parity.unrounded.positions, strict=False):
            row.append(f"{compared.relative:.1e}")
    out.table(headers, rows, right=",".join(headers))


def main() -> None:
    run(validate_command, "dspark-validate")


if __name__ == "__main__":
    main()
