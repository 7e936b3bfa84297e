"""dspark-check: the conversion checks of a CI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_convert.cli.output import Output
from dspark_convert.cli.runner import VersionFlag, run
from dspark_convert.errors import writing

if TYPE_CHECKING:
    from dspark_convert.check.checks import Case
    from dspark_convert.check.results import Result


def check(
    file: Annotated[
        Path, typer.Argument(metavar="CHECKS.toml", help="The checks; init SOURCE writes a first one (init --help).")
    ],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Make this check alone; may be repeated.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=64, metavar="N", help="Checks at a time (default: the cores, at most 8).")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GB", min=0.1, max=1e6, help="Memory for all of them (default: three quarters of what is free)."
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Make checks again that passed before.")] = False,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep converted files in DIR/NAME/OUTTYPE; makes all anew.")
    ] = None,
    write_plans: Annotated[
        bool,
        typer.Option("--write-plans", help="Write the golden plans anew, as the drafts are now, and check nothing."),
    ] = False,
    lib: Annotated[Path | None, typer.Option(metavar="PATH", help="llama.cpp library for the step validate.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append a summary in Markdown ($GITHUB_STEP_SUMMARY).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print what failed only.")] = False,
    version: VersionFlag = False,  # noqa: ARG001 - its callback prints and exits
) -> int:
    """Make the checks in CHECKS.toml: plan, convert, inspect, validate and compare drafts with what is expected.

    Exit code 0: all passed; 1: a draft is not as expected; 3: the file of checks is wrong; 4: a check could not be
    made on this machine.
    """
    from dspark_convert.check.cache import Cache, cache_directory
    from dspark_convert.check.reading import read_checks
    from dspark_convert.check.results import document, exit_code
    from dspark_convert.check.schedule import SHARE, default_jobs, free_memory, run_cases
    from dspark_convert.errors import UsageError

    checks = read_checks(file, plans_to_write=write_plans)
    unknown = set(only or ()) - {check.name for check in checks}
    if unknown:
        raise UsageError(f"--only {sorted(unknown)[0]} names none of the checks in {file}.")
    cases = [case for check in checks if not only or check.name in only for case in check.cases]
    for path in (junit, markdown):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{path} cannot be written, for its directory is not there; create it first.")
        if path is not None and (path.is_dir() or path.resolve() == file.resolve()):
            kind = "a directory" if path.is_dir() else "the file of checks"
            raise UsageError(f"{path} is {kind}; give another name for the results.")
    lib = None if lib is None else lib.resolve()
    out = Output(json=json, quiet=quiet)
    if write_plans:
        return _write_plans(out, cases)

    def done(result: Result) -> None:
        if sys.stderr.isatty():
            out.note(f"{result.name} {result.outtype}: {result.status}")

    results = run_cases(
        cases,
        jobs=jobs or default_jobs(),
        memory=int(SHARE * free_memory()) if memory is None else int(memory * 1e9),
        cache=None if no_cache or keep is not None else Cache(cache_directory(), lib),
        keep=None if keep is None else keep.resolve(),
        lib=lib,
        done=done,
    )
    _write(file, results, junit, markdown)
    _show(out, results)
    out.json(document(file, results))
    return exit_code(results)


def _write_plans(out: Output, cases: list[Case]) -> int:
    from dspark_convert.check.first import golden_plans

    plans = golden_plans(cases)
    changed = {path: text for path, text in plans.items() if not path.is_file() or path.read_bytes() != text.encode()}
    for path, text in changed.items():
        _write_text(path, text)
        out.human(f"wrote {path}")
    out.human(f"{len(plans)} golden {'plan' if len(plans) == 1 else 'plans'}, {len(changed)} of them changed")
    return 0


def _write_text(path: Path, text: str) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _write(file: Path, results: list[Result], junit: Path | None, markdown: Path | None) -> None:
    if junit is not None:
        from dspark_convert.check.junit import junit as junit_text

        _write_text(junit, f'<?xml version="1.0" encoding="utf-8"?>\n{junit_text(file, results)}')
    if markdown is not None:
        from dspark_convert.check.table import markdown as markdown_text

        with writing(markdown), markdown.open("a", encoding="utf-8") as stream:
            stream.write(markdown_text(results))


def _show(out: Output, results: list[Result]) -> None:
    from dspark_convert.check.results import summary
    from dspark_convert.check.table import header, rows
    from dspark_convert.cli.text import abridged

    if results:
        out.table(header(results), rows(results), right="time")
    for result in results:
        if result.status == "pass":
            continue
        lines = [f"{result.name} {result.outtype}: {result.status}", *(f"  {reason}" for reason in result.reasons)]
        for line in lines if out.quiet else ["", *lines]:
            if out.quiet:
                print(abridged(line), file=sys.stderr)
            else:
                out.line(abridged(line))
    out.human("", summary(results))


def init(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="The draft: a checkpoint's directory, a hub id, or a GGUF.")
    ],
    target: Annotated[
        Path | None,
        typer.Option(metavar="DIR|FILE|HUB-ID", help="Its target; with a GGUF the check also runs the draft."),
    ] = None,
    outtype: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Type to check; may be repeated (default: auto).")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the check (default: the source's).")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Golden plans go into plans/ beside it.")
    ] = Path("CHECKS.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
) -> int:
    """Write a first CHECKS.toml for a draft, with what it is today as what is expected. Reads headers only."""
    from dspark_convert.check.first import first_checks, require_free
    from dspark_convert.check.values import outtypes

    if not force:
        require_free([output])
    first = first_checks(source, target, outtypes(outtype or ["auto"]), output, name=name)
    if not force:
        require_free(list(first.texts))
    for path, text in first.texts.items():
        _write_text(path, text)
    out = Output()
    out.human(f"{output}: 1 check of {first.tensors} tensors, {first.nbytes:,} bytes; steps {', '.join(first.steps)}")
    out.human(f"Run it with\n  dspark-check {output}")
    return 0


def main() -> None:
    if sys.argv[1:2] == ["init"]:
        run(init, "dspark-check init", sys.argv[2:])
    run(check, "dspark-check")


if __name__ == "__main__":
    main()
