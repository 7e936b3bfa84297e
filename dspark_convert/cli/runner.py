"""Start a command and turn whatever ends it into one message and the right exit code."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Annotated, Any, NoReturn

import typer

from dspark_convert import __version__
from dspark_convert.cli.output import coloured, print_findings, print_json
from dspark_convert.cli.plain_arguments import plain_arguments
from dspark_convert.cli.text import abridged
from dspark_convert.errors import DsparkError, EnvironmentFault, UsageError
from dspark_convert.findings import Finding

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_UNEXPECTED = 70


class Terminated(BaseException):
    """A signal asked this process to end; raised so that every ``finally`` runs first."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.exit_code = 128 + signum


class ReaderGone(BaseException):
    """Whoever read stdout (head, less) has closed it; typer would turn BrokenPipeError into exit 1."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


#: the --version option: a parameter ``version: VersionFlag = False`` of a command function
VersionFlag = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
]

#: options of the commands that run llama.cpp
LibraryOption = Annotated[
    Path | None, typer.Option("--lib", metavar="PATH", help="The llama.cpp library, or the directory that holds it.")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1.0, help="Give up after this long.")]
MemoryOption = Annotated[
    float | None,
    typer.Option(
        "--memory",
        metavar="GB",
        min=0.1,
        max=1e6,
        help="Let llama.cpp take at most this much (default: twice the files, and 8).",
    ),
]


def run(command: Callable[..., Any], prog: str, args: Sequence[str] | None = None) -> NoReturn:
    """Run ``command``, a function with typer's annotations, and exit with its code.

    The function returns None or an exit code (or raises typer.Exit). DsparkError ends in one
    message on stderr, and with --json also in ``{"schema", "error", "findings"}`` on stdout.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    _open_standard_streams()
    _drop_empty_variables()
    # A terminal or locale that cannot show a character gets an escape, not a UnicodeEncodeError.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    _raise_on_termination()
    try:
        code = _invoke(command, prog, arguments)
        sys.stdout.flush()
    except (BrokenPipeError, ReaderGone):
        _give_up(sys.stdout)
        code = EXIT_BROKEN_PIPE
    except OSError as fault:
        _give_up(sys.stdout)
        code = _tell(EnvironmentFault(f"the results cannot be printed: {fault.strerror}."), prog, [])
    except Terminated as stop:
        code = stop.exit_code
    if code == EXIT_INTERRUPTED:
        print("interrupted", file=sys.stderr)
    sys.exit(code)


def _drop_empty_variables() -> None:
    """Empty is unset: huggingface_hub would put its cache into the working directory, and look for a token there."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH", "HF_ENDPOINT", "XDG_CACHE_HOME"):
        if not os.environ.get(name, "set"):
            del os.environ[name]


def _give_up(stream: IO[str]) -> None:
    """Let what ``stream`` still holds go nowhere: the interpreter would try to flush it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_standard_streams() -> None:
    """Give a process that was started with closed streams (``>&-``) null devices for them.

    Python has None in their place, and the next file that is opened, be it the output, would get
    the number of the missing one, to which libraries and child processes write.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def _invoke(command: Callable[..., Any], prog: str, args: list[str]) -> int:
    try:
        return _call(command, prog, args)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except DsparkError as fault:
        return _tell(fault, prog, args)
    except OSError as fault:
        what = fault.strerror or str(fault)
        where = f"{fault.filename}: " if fault.filename is not None else ""
        return _tell(EnvironmentFault(f"{where}{what}."), prog, args)
    except MemoryError:
        return _tell(EnvironmentFault("there is not enough memory for this."), prog, args)
    except Exception as fault:
        if os.environ.get("DSPARK_DEBUG") == "1":
            traceback.print_exc()
        message = (
            f"{prog} hit a fault of its own ({type(fault).__name__}: {fault}); please report it,"
            " with the output of the same command under DSPARK_DEBUG=1."
        )
        return _fail(message, EXIT_UNEXPECTED, (), prog, args)


def _call(command: Callable[..., Any], prog: str, args: list[str]) -> int:
    @functools.wraps(command)
    def guarded(*positional: Any, **options: Any) -> Any:
        try:
            return command(*positional, **options)
        except BrokenPipeError as fault:
            raise ReaderGone from fault

    plain = plain_arguments(command, args)
    try:
        result = _typed(guarded, prog, args) if plain is None else guarded(**plain)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except Exception as fault:
        # Every error of the command line parser, whichever click typer brings, formats itself.
        format_message = getattr(fault, "format_message", None)
        if format_message is None:
            raise
        message = f"{format_message().rstrip('.')}; see {prog} --help."
        raise UsageError(message) from fault
    return result if isinstance(result, int) else 0


def _typed(command: Callable[..., Any], prog: str, args: list[str]) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(command)
    return typer.main.get_command(app).main(args, prog_name=prog, standalone_mode=False)


def _tell(fault: DsparkError, prog: str, args: list[str]) -> int:
    return _fail(str(fault), fault.exit_code, fault.findings, prog, args)


def _fail(message: str, code: int, findings: Sequence[Finding], prog: str, args: list[str]) -> int:
    told = findings
    if {"--quiet", "-q"} & set(args):
        # With --strict warnings are what went wrong; notes never are.
        told = [f for f in findings if f.severity == "error"] or [f for f in findings if f.severity == "warning"]
    try:
        print_findings(told, sys.stderr)
        print(f"{coloured(sys.stderr, '1;31', 'error')}: {abridged(message)}", file=sys.stderr)
    except OSError:  # the fault cannot be told, but the exit code still can
        _give_up(sys.stderr)
    if "--json" in args:
        document = {
            "schema": f"{prog}/1",
            "error": {"message": message, "exit_code": code},
            "findings": [finding.to_json() for finding in findings],
        }
        with contextlib.suppress(OSError):
            print_json(document)
    return code


def _raise_on_termination() -> None:
    def stop(signum: int, _frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)
        raise Terminated(signum)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), stop)
