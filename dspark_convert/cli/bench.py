"""dspark-bench: how much a draft is accepted, what it costs on this machine, and whether it pays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dspark_convert.bench import DEFAULT_MAX_TOKENS, DEFAULT_SECONDS, DEFAULT_TIMEOUT
from dspark_convert.cli.output import Output
from dspark_convert.cli.phases import phases
from dspark_convert.cli.runner import LibraryOption, MemoryOption, TimeoutOption, VersionFlag, run


def bench_command(
    draft: Annotated[Path, typer.Argument(metavar="DRAFT.gguf", help="The draft.")],
    target: Annotated[Path, typer.Option("--target", metavar="TARGET.gguf", help="The model that it drafts for.")],
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help="Prompts, one a line (default: built-in ones).")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=2, help="Tokens to decode for each prompt.")
    ] = DEFAULT_MAX_TOKENS,
    time: Annotated[
        float, typer.Option("--time", metavar="SECONDS", min=0.0, help="Begin no further measurement after this long.")
    ] = DEFAULT_SECONDS,
    sweep: Annotated[
        bool, typer.Option("--sweep/--no-sweep", help="Try every n-max and some confidence thresholds too.")
    ] = True,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compute as dspark-validate does: F32 cache, no flash attention.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", min=1, max=1024, help="Threads (default: as many as suit the target)."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a report with charts.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the charts as SVG.")] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write the charts as PNG (needs the extra 'plots').")
    ] = None,
    lib: LibraryOption = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    memory: MemoryOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    version: VersionFlag = False,  # noqa: ARG001 - handled by its callback
) -> int:
    """Measure DRAFT.gguf with its target in llama.cpp: how much is accepted, what it costs, does it pay here?

    Exit code 0: measured; 1: acceptance shows that the draft is broken; 3: a file cannot be used; 4: there is no
    llama.cpp library that runs DSpark drafts.
    """
    from dspark_convert.bench.bench import bench
    from dspark_convert.bench.prompts import from_file
    from dspark_convert.cli.bench_view import require_writable, show_bench, write_pictures

    out = Output(json=json, quiet=quiet)
    require_writable({"--html": html, "--svg": svg, "--png": png})
    texts = None if prompts is None else from_file(prompts)
    with phases(out) as on_phase:
        report = bench(
            draft,
            target,
            lib=lib,
            prompts=texts,
            max_tokens=max_tokens,
            seconds=time,
            timeout=timeout,
            threads=threads,
            memory=None if memory is None else int(memory * 1e9),
            exact=exact,
            sweep=sweep,
            on_phase=on_phase,
        )
    write_pictures(report, html=html, svg=svg, png=png)
    show_bench(out, report)
    out.json(report.to_json())
    return 1 if report.findings else 0


def main() -> None:
    run(bench_command, "dspark-bench")


if __name__ == "__main__":
    main()
