"""What is read without typer's converters is what typer itself makes of the same command line."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from dspark_convert.cli import bench, check, convert, inspect, validate
from dspark_convert.cli.plain_arguments import plain_arguments

COMMANDS: dict[str, Callable[..., Any]] = {
    "bench": bench.bench_command,
    "check": check.check,
    "check init": check.init,
    "convert": convert.convert,
    "inspect": inspect.inspect,
    "validate": validate.validate_command,
}

PLAIN = {
    "bench": ["d.gguf --target t.gguf", "d.gguf --target t.gguf --threads 2 --json -q --html=x=y.html"],
    "convert": [
        "draft --target-model-dir t",
        "draft --target-model-dir=t -o out.gguf --outtype bf16 --shared-tensors include --force",
        "--mask-token-id 0 draft --no-sample-from-anchor --threads 16 --threads 3 --json",
        "org/name@main --sample-from-anchor --ctx 0012 --lib /no/such/place -o a -o b",
    ],
    "inspect": ["d.gguf", "d.gguf --target t.gguf --tensors --metadata -q --strict"],
    "validate": ["d.gguf --target t.gguf --reference dir"],
}

NOT_PLAIN = [
    "",
    "draft more",
    "draft --help",
    "draft -h",
    "draft --version",
    "draft --outtype",
    "draft --outtype bf17",
    "draft --outtype BF16",
    "draft --ctx 0",
    "draft --ctx -1",
    "draft --ctx 1_0",
    "draft --ctx ٣",
    "draft --threads 17",
    "draft --force=1",
    "draft -qo x",
    "draft -o=x",
    "draft -ox",
    "draft --outfile=",
    "draft --out x",
    "draft -- --force",
    "draft -o -",
    "draft --tokenizer-pre \udcff",
]


def of_typer(command: Callable[..., Any], arguments: list[str]) -> dict[str, Any] | None:
    """What typer calls ``command`` with; None if it does not."""
    called: list[dict[str, Any]] = []

    @functools.wraps(command)
    def record(**options: Any) -> None:
        called.append(options)

    app = typer.Typer(add_completion=False)
    app.command()(record)
    try:
        typer.main.get_command(app).main(arguments, prog_name="x", standalone_mode=False)
    except Exception as fault:
        assert hasattr(fault, "format_message")
    return called[0] if called else None


def assert_same(command: Callable[..., Any], arguments: list[str]) -> dict[str, Any] | None:
    plain = plain_arguments(command, arguments)
    if plain is not None:
        expected = of_typer(command, arguments)
        assert expected is not None
        for given in (plain, expected):
            given.pop("version", None)  # no command looks at it: its callback prints and exits
        assert plain == expected
        assert {name: type(value) for name, value in plain.items()} == {n: type(v) for n, v in expected.items()}
    return plain


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in PLAIN.items() for line in lines])
def test_a_plain_line_is_read_as_typer_reads_it(name: str, line: str) -> None:
    assert assert_same(COMMANDS[name], line.split()) is not None


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_typer(line: str) -> None:
    assert plain_arguments(convert.convert, line.split()) is None


@pytest.mark.parametrize("name", COMMANDS)
def test_any_line_is_left_to_typer_or_read_as_typer_reads_it(name: str) -> None:
    """Lines of the command's own options with sound and unsound values, in any order."""
    draw = random.Random(name)
    command = COMMANDS[name]
    click = typer.main.get_command(_app(command))
    spellings = [spelling for each in click.params for spelling in (*each.opts, *each.secondary_opts)]
    words = ["draft", "", "-", "--", "1", "007", "0", "99999999999999999999", "1.5", "bf16", "q8_0", "include", "-q"]
    plain = 0
    for _ in range(200):
        line = [draw.choice(words[:1] + words)]
        for _ in range(draw.randrange(4)):
            spelling = draw.choice(spellings)
            joined = draw.random() < 0.3
            word = draw.choice(words)
            line += [f"{spelling}={word}"] if joined else [spelling, word] if draw.random() < 0.6 else [spelling]
        if name in ("bench", "validate"):
            line += ["--target", "t.gguf"]
        plain += assert_same(command, line) is not None
    assert plain > 10 or name.startswith("check")  # which takes a list of names, or needs four options


def _app(command: Callable[..., Any]) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return app


def test_a_parameter_that_is_more_than_a_value_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(what: str) -> None: ...
    def several(what: Annotated[list[str], typer.Option()]) -> None: ...
    def either(what: Annotated[int | str, typer.Option()] = 1) -> None: ...
    def prompted(what: Annotated[str, typer.Option(prompt=True)] = "x") -> None: ...
    def from_outside(what: Annotated[str, typer.Option(envvar="WHAT")] = "x") -> None: ...
    def changed(what: Annotated[str, typer.Option(callback=str.upper)] = "x") -> None: ...
    def existing(what: Annotated[Path, typer.Argument(exists=True)]) -> None: ...

    monkeypatch.setattr("builtins.Path", Path, raising=False)
    for command in (bare, several, either, prompted, from_outside, changed, existing):
        assert plain_arguments(command, ["x"]) is None
        assert plain_arguments(command, ["--what", "x"]) is None


def test_an_unreadable_file_is_typers_to_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "draft").touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    assert plain_arguments(convert.convert, [str(tmp_path / "draft")]) is None
    assert plain_arguments(convert.convert, [str(tmp_path / "none")]) is not None


@pytest.mark.parametrize(("line", "imported"), [("no.gguf", False), ("no.gguf --ctx x", True)])
def test_a_plain_line_needs_no_pydantic(line: str, imported: bool) -> None:
    """Typer imports it for what it reads itself, from version 0.29 on."""
    of_typer(inspect.inspect, ["no.gguf"])
    pydantic = "typer._adapters" in sys.modules
    lines = (
        "import sys",
        "from dspark_convert.cli import inspect",
        f"try: inspect.run(inspect.inspect, 'x', {line.split()!r})",
        "except SystemExit: print('pydantic' in sys.modules)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == str(imported and pydantic)
