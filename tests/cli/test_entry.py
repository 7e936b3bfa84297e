"""Ctrl-C while a command is still importing: no traceback, exit 130."""

import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from dspark_convert import __version__

ROOT = Path(__file__).parents[2]
COMMANDS = ["bench", "check", "convert", "inspect", "validate"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupt_during_the_imports_ends_in_one_word(command: str, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom dspark_convert.cli import entry\nentry.{command}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_nothing_is_imported_before_an_interrupt_is_looked_after() -> None:
    code = "import sys; had = set(sys.modules); import dspark_convert.cli.entry; print(*sorted(set(sys.modules) - had))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["dspark_convert", "dspark_convert.cli", "dspark_convert.cli.entry"]


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_ends_with_all_that_it_printed_and_is_not_taken_apart(code: int) -> None:
    lines = (
        "import sys",
        "from dspark_convert.cli import entry, inspect",
        "class Kept:",
        "    def __del__(self): print('taken apart', file=sys.stderr)",
        "kept = Kept()",
        f"inspect.main = lambda: (print('x' * 100_000), sys.exit({code}))",
        "entry.inspect()",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, len(done.stdout), done.stderr) == (code, 100_001, "")


def test_every_installed_command_starts_there() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {f"dspark-{name}": f"dspark_convert.cli.entry:{name}" for name in COMMANDS}
    assert all(find_spec(f"dspark_convert.cli.{name}") for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_module_is_a_command_too(command: str) -> None:
    run = [sys.executable, "-m", f"dspark_convert.cli.{command}", "--version"]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, __version__, "")


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    """huggingface_hub itself takes the working directory for an empty HF_HOME."""
    empty = dict.fromkeys(("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH", "HF_ENDPOINT", "XDG_CACHE_HOME"), "")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from dspark_convert.cli import entry; entry.inspect()"
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code, "acme/draft"],
        capture_output=True,
        text=True,
        cwd=work,
        env={**os.environ, **empty, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 4
    assert f"in the cache {tmp_path}/.cache/huggingface/dspark-convert, and" in done.stderr
    assert list(work.iterdir()) == []
