"""dspark-bench as a command, in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dspark_convert.cli.bench_view import require_writable
from dspark_convert.errors import EnvironmentFault
from fixtures import train_pair
from tests.runtime.pairs import PairFiles, write_gguf
from tests.runtime.test_ending import Hanging
from tests.runtime.test_trained_pair import rotate_the_other_way

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "bench-1.json").read_text())
COMMAND = [sys.executable, "-c", "from dspark_convert.cli.bench import main; main()"]
ROOT = Path(train_pair.__file__).with_name("pair")
GIVEN = ("--prompts", ROOT / "prompts.txt")


def call(*args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", **environment},
        timeout=100,
    )


def checked(out: str) -> dict[str, Any]:
    """The document on stdout, if it is as the schema promises."""
    document: dict[str, Any] = json.loads(out)
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    return document


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> PairFiles:
    return write_gguf(tmp_path_factory.mktemp("trained"), ROOT / "target", ROOT / "draft")


def test_report_for_a_reader_and_pictures(trained: PairFiles, tmp_path: Path) -> None:
    pictures = {option: tmp_path / f"report.{option}" for option in ("html", "svg", "png")}
    options = [part for option, path in pictures.items() for part in (f"--{option}", path)]
    done = call(trained.draft, "--target", trained.target, *GIVEN, "--max-tokens", "24", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "draft.gguf with target.gguf: DSpark, 7 proposals a round"
    pair = lines.index("The pair: greedy acceptance, the same on every machine (but for near-ties)")
    machine = next(number for number, line in enumerate(lines) if line.startswith("This machine: speed with "))
    assert pair < machine
    # positions, then every n-max and five thresholds
    assert [line.split()[0] for line in lines[pair:machine] if re.match(r" +\d ", line)] == list("0123456")
    tried = [
        line.split()[0] for line in lines[machine:] if re.search(r"\dx  ?", line[:70]) and re.match(r" +[\d.]+ ", line)
    ]
    assert tried == [*"1234567", "0", "0.2", "0.4", "0.6", "0.8"]
    assert "█" in done.stdout and "\x1b" not in done.stdout
    slower = any(line.startswith("Does not pay") for line in lines)
    assert lines[-2] == ("To try it all the same" if slower else "Run it with")
    assert lines[-1].startswith("  llama-server -m ") and "--spec-draft-n-max" in lines[-1]
    assert pictures["html"].read_text("utf-8").startswith("<!DOCTYPE html>")
    assert pictures["svg"].read_text("utf-8").startswith("<svg ")
    assert pictures["png"].read_bytes().startswith(b"\x89PNG")


def test_ascii_where_the_encoding_has_nothing_else(bigram_pair: PairFiles) -> None:
    options = ("--max-tokens", "9", "--no-sweep")
    done = call(bigram_pair.draft, "--target", bigram_pair.target, *GIVEN, *options, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "\\u" not in done.stdout
    assert "#" * 20 in done.stdout
    assert "Other settings were not tried (--no-sweep)." in done.stdout


def test_json_alone_on_stdout(trained: PairFiles) -> None:
    options = (*GIVEN, "--json", "--exact", "--max-tokens", "24")
    done = call(trained.draft, "--target", trained.target, *options)
    assert done.returncode == 0, done.stderr
    document = checked(done.stdout)
    assert document["pair"]["diagnosis"]["shape"] == "flat"
    assert list(document["pair"]["kinds"]) == ["given"]
    assert len(document["machine"]["settings"]) == 11
    best = document["machine"]["best"]
    assert f"--spec-draft-n-max {best['n_max']}" in document["command"]
    # what is the pair's depends neither on the sweep nor on the run
    again = call(trained.draft, "--target", trained.target, *options, "--no-sweep")
    assert checked(again.stdout)["pair"] == document["pair"]


def test_broken_draft_ends_in_1(trained: PairFiles) -> None:
    broken = trained.broken("rotated-cli", rotate_the_other_way)
    options = (broken, "--target", trained.target, *GIVEN, "--no-sweep", "--exact")
    done = call(*options, "--json")
    assert done.returncode == 1
    document = checked(done.stdout)
    assert [(finding["rule"], finding["severity"]) for finding in document["findings"]] == [
        ("acceptance-falls", "error")
    ]
    quiet = call(*options, "--quiet")
    assert (quiet.returncode, quiet.stdout) == (1, "")
    assert quiet.stderr.startswith("error: ")
    assert "RoPE" in quiet.stderr and "[acceptance-falls]" in quiet.stderr


def test_draft_that_knows_nothing_ends_in_1(random_pair: PairFiles) -> None:
    done = call(random_pair.draft, "--target", random_pair.target, "--no-sweep", "--max-tokens", "16", "--quiet")
    assert done.returncode == 1
    assert "[acceptance-floor]" in done.stderr


@pytest.mark.parametrize(
    ("draft", "options", "code", "words"),
    [
        ("draft", [], 2, "--target"),
        ("draft", ["--target", "none.gguf"], 2, "none.gguf"),
        ("draft", ["--target", "target", "--max-tokens", "1"], 2, "--max-tokens"),
        ("draft", ["--target", "target", "--time", "nan"], 2, "--time"),
        ("draft", ["--target", "target", "--threads", "0"], 2, "--threads"),
        ("draft", ["--target", "target", "--prompts", "none.txt"], 2, "no prompts file none.txt"),
        ("draft", ["--target", "target", "--html", "nowhere/a.html"], 2, "--html nowhere/a.html cannot be written"),
        ("draft", ["--target", "target", "--svg", "draft"], 2, "is another kind of file"),
        ("draft", ["--target", "target", "--lib", "nowhere"], 2, "no file or directory nowhere"),
        ("draft", ["--target", "target", "--lib", "draft"], 4, "cannot be loaded as a library"),
        ("draft", ["--target", "target", "--timeout", "1", "--max-tokens", "9000"], 2, "--max-tokens 9000"),
        ("target", ["--target", "target"], 3, "if it is the target, give the draft instead"),
        ("draft", ["--target", "draft"], 3, "is itself a draft"),
    ],
)
def test_mistakes_end_in_one_message(
    random_pair: PairFiles, draft: str, options: list[str], code: int, words: str
) -> None:
    names = {"draft": str(random_pair.draft), "target": str(random_pair.target)}
    done = call(names[draft], *(names.get(option, option) for option in options))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_that_may_not_be_written_is_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere but on a read-only file system
    with pytest.raises(EnvironmentFault, match=r"--html .*a\.html cannot be written"):
        require_writable({"--html": tmp_path / "a.html"})


def test_png_without_its_package_is_told_before_anything_is_measured(random_pair: PairFiles, tmp_path: Path) -> None:
    (tmp_path / "resvg_py.py").write_text("raise ImportError\n")
    png = tmp_path / "a.png"
    done = call(random_pair.draft, "--target", random_pair.target, "--png", png, PYTHONPATH=str(tmp_path))
    assert done.returncode == 4
    assert "pip install 'dspark-convert[plots]'" in done.stderr
    assert not png.exists()


def test_ctrl_c_leaves_no_process_and_no_file(random_pair: PairFiles, tmp_path: Path) -> None:
    hanging = Hanging(tmp_path)
    report = tmp_path / "a.html"
    arguments = [*COMMAND, str(random_pair.draft), "--target", str(random_pair.target), "--lib", str(hanging.path)]
    process, terminal = pty.fork()
    if process == 0:
        os.execv(arguments[0], [*arguments, "--html", str(report)])  # noqa: S606
    hanging.wait_until_loading()
    os.kill(process, signal.SIGINT)
    hanging.wait_until_dead()
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert not report.exists()


def test_help_is_quick_to_import() -> None:
    probe = (
        "import sys, dspark_convert.cli.bench;"
        "print([m for m in ('numpy', 'rich.table', 'ctypes', 'torch', 'statistics') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
