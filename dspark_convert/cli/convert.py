"""dspark-convert: a draft checkpoint, or a GGUF of another kind, becomes a GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_convert.cli.output import Output
from dspark_convert.cli.runner import VersionFlag, run
from dspark_convert.findings import Finding, info
from dspark_convert.options import Dialect, Experts, Options, Outtype, SharedTensors

if TYPE_CHECKING:
    from dspark_convert.convert import Prepared, Request
    from dspark_convert.runtime.report import ValidationReport


def convert(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="The draft: a checkpoint's directory, org/name[/folder][@revision] on the hub, or a GGUF to port.",
        ),
    ],
    target_model_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The target's directory or hub id: tokenizer and fit (default: MODEL, if it holds both).",
        ),
    ] = None,
    target_gguf: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The target as a GGUF: the same from there; --verify needs it.")
    ] = None,
    outfile: Annotated[
        str | None,
        typer.Option(
            "--outfile", "-o", metavar="PATH", help="File or directory; default <dspark|dflash>-<Target>-<TYPE>.gguf."
        ),
    ] = None,
    outtype: Annotated[
        Outtype, typer.Option(help="Type of the matrices; auto keeps BF16 and FP4, and makes Q8_0 of FP8.")
    ] = "auto",
    experts: Annotated[
        Experts, typer.Option(help="Type of a mixture's experts; keep leaves FP4 as it is (MXFP4).")
    ] = "keep",
    dequantize: Annotated[
        bool, typer.Option("--dequantize", help="NVFP4 follows --outtype like plain numbers, instead of staying.")
    ] = False,
    dialect: Annotated[
        Dialect,
        typer.Option(help="Layout: dflash is today's llama.cpp's, dspark that of its first revisions with DSpark."),
    ] = "dflash",
    shared_tensors: Annotated[
        SharedTensors, typer.Option(help="Embeddings and head: borrow the target's, or write the draft's.")
    ] = "omit",
    tokenizer_pre: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the pre-tokenizer, where it is not recognised.")
    ] = None,
    no_chat_template: Annotated[bool, typer.Option("--no-chat-template", help="Leave the template out.")] = False,
    mask_token_id: Annotated[
        int | None,
        typer.Option(min=0, max=2**32 - 1, metavar="ID", help="Mask token, where the config is silent or wrong."),
    ] = None,
    sample_from_anchor: Annotated[
        bool | None,
        typer.Option(
            "--sample-from-anchor/--no-sample-from-anchor",
            help="Whether slot 0 of a block predicts (default: as its config says).",
        ),
    ] = None,
    ctx: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Positions, for the memory that is told (default: the draft's context length)."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and check; write nothing.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Run the file on --target-gguf and compare it with MODEL, as dspark-validate does."
        ),
    ] = False,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prompts for --verify, one a line (default: built-in texts).")
    ] = None,
    lib: Annotated[
        Path | None, typer.Option(metavar="PATH", help="llama.cpp library for --verify and for the k-quants.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=16, metavar="N", help="Threads (default: the cores, at most 8).")
    ] = None,
    split_max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Split the output into files of at most SIZE (500M, 2G).")
    ] = None,
    sha256: Annotated[
        bool, typer.Option("--sha256", help="Write PATH.sha256 beside the file, as sha256sum does.")
    ] = False,
    tensor_hashes: Annotated[
        bool, typer.Option("--tensor-hashes", help="Hash each tensor too, for --sha256 and --json.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print plan, findings and output as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    version: VersionFlag = False,  # noqa: ARG001 - its callback prints and exits
) -> int:
    """Write the DSpark draft in MODEL as a GGUF that llama.cpp runs beside its target.

    A GGUF of any known layout is ported: to --dialect, with the vocabulary of its target if that is given, and with
    other types if --outtype or --experts name them. The draft's own mask token is kept.
    """
    from dspark_convert.cli.convert_view import document, show_plan, show_result
    from dspark_convert.convert import Request, output_path, prepare, write
    from dspark_convert.errors import UsageError
    from dspark_convert.ggufio.split import parse_size

    if tensor_hashes and not (sha256 or json):
        raise UsageError("--tensor-hashes needs a place for the hashes: add --sha256 or --json.")
    if verify and target_gguf is None:
        raise UsageError("--verify runs the draft with its target: give it with --target-gguf FILE.")
    if verify and dry_run:
        raise UsageError("--verify needs a written file, --dry-run writes none: leave one of them out.")
    if verify and dialect != "dflash":
        raise UsageError(f"--verify cannot run the {dialect} dialect, which no released llama.cpp loads: leave it out.")
    if prompts is not None and not verify:
        raise UsageError("--prompts is for --verify: add it, or leave it out.")
    quantiser = None if lib is None else _quantiser(lib, outtype, experts)
    if lib is not None and quantiser is None and not verify:
        raise UsageError("--lib is for --verify and for types that ggml has to make (q4_k): add one, or leave it out.")
    texts = _ready_to_verify(prompts, lib) if verify else None
    overrides = {"mask_token_id": mask_token_id, "sample_from_anchor": sample_from_anchor}
    options = Options(
        outtype=outtype,
        experts=experts,
        dialect=dialect,
        shared_tensors=shared_tensors,
        tokenizer_pre=tokenizer_pre,
        chat_template=not no_chat_template,
        dequantize=dequantize,
        overrides={name: value for name, value in overrides.items() if value is not None},
    )
    out = Output(json=json, quiet=quiet)
    max_size = None if split_max_size is None else parse_size(split_max_size)
    request = Request(model, target_model_dir, target_gguf, output_path(outfile), options, force, strict, max_size)
    prepared = prepare(request, dry_run=dry_run, sink=out)
    out.findings(prepared.plan.findings)
    if dry_run:
        show_plan(out, prepared, ctx)
        out.json(document(prepared, prepared.plan.findings, None, None, ctx))
        return 0
    from dspark_convert.writing.writer import Hashing

    done = 0
    with out.progress("writing", sum(job.nbytes for job in prepared.plan.tensors)) as advance:

        def progress(written: int, _total: int) -> None:
            nonlocal done
            advance(written - done)
            done = written

        hashing = Hashing(files=json, tensors=tensor_hashes, sidecar=sha256)
        result = write(prepared, request, threads=threads, library=quantiser, hashing=hashing, progress=progress)
    out.findings(result.findings)
    report = None
    findings = [*prepared.plan.findings, *result.findings]
    show_result(out, prepared, result, target_gguf, ctx)
    if verify:
        report, told = _verify(out, prepared, result.path, request, lib, texts)
        findings += told
    out.json(document(prepared, findings, result, report, ctx))
    return 0 if report is None or report.passed else 1


def _verify(
    out: Output, prepared: Prepared, path: Path, request: Request, lib: Path | None, prompts: list[str] | None
) -> tuple[ValidationReport, list[Finding]]:
    """Run the written file; a finding says so where it is not compared with what it was made from."""
    from dspark_convert.cli.validate import show_report
    from dspark_convert.runtime.proof import why_not_compared
    from dspark_convert.runtime.validation import validate

    assert request.target_gguf is not None  # noqa: S101 - --verify needs it
    if prepared.is_port:
        why_not = "it was made from a GGUF (dspark-validate --reference DIR compares it)"
    elif request.options.overrides:
        why_not = "an option overrides its config"
    else:
        why_not = why_not_compared(prepared.model)
    findings = []
    if why_not:
        message = f"the file is not compared with the checkpoint: {why_not}"
        out.note(f"note: {message}")
        findings.append(info("not-compared", str(request.model), f"{message}."))
    reference = None if why_not else prepared.model
    report = validate(path, request.target_gguf, reference=reference, lib=lib, prompts=prompts)
    show_report(out, report)
    return report, findings


def _quantiser(lib: Path, *types: str) -> Path | None:
    """The ggml library in ``lib`` if one of ``types`` (as the options name them) needs one."""
    from dspark_convert.tensors.ggml_quants import find_library
    from dspark_convert.tensors.quantize import NEED_LIBRARY

    return find_library(lib) if {ggml_type.name.lower() for ggml_type in NEED_LIBRARY} & {*types} else None


def _ready_to_verify(prompts: Path | None, lib: Path | None) -> list[str] | None:
    """The prompts; raises before any work if they or a library are not to be found."""
    from dspark_convert.runtime.library import find_library
    from dspark_convert.runtime.validation import read_prompts

    find_library(lib)
    return None if prompts is None else read_prompts(prompts)


def main() -> None:
    run(convert, "dspark-convert")


if __name__ == "__main__":
    main()
