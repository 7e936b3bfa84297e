"""dspark-validate as a command, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.runtime.pairs import PairFiles

SCHEMA = json.loads((files("dspark_convert") / "schemas" / "validate-1.json").read_text())
COMMAND = [sys.executable, "-c", "from dspark_convert.cli.validate import main; main()"]


def call(*args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        # Threads that wait for each other cost these small models much on a busy machine.
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        timeout=100,
    )


def checked(out: str) -> dict[str, Any]:
    """The document on stdout, if it is as the schema promises."""
    document: dict[str, Any] = json.loads(out)
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    return document


def test_report_for_a_reader(bigram_pair: PairFiles) -> None:
    done = call(bigram_pair.draft, "--target", bigram_pair.target, "--max-tokens", "17")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][0] == "library"
    assert [line[1] for line in lines if line and line[0] in ("draft", "pair", "load", "lossless")] == ["pass"] * 4
    # 8 prompts, 16 tokens behind the first one: two rounds each
    assert [line for line in lines if len(line) == 5 and line[0].isdigit()] == [
        [str(position), "16", "16", "1.000", "1.000"] for position in range(7)
    ]
    assert lines[-2] == "mean accepted length: 8.00 tokens a round".split()
    said = done.stdout.splitlines()[-1]
    assert said == "what the file computes was not compared with its checkpoint: --reference DIR does that"


def test_json_alone_on_stdout(random_pair: PairFiles, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("the small boat\n")
    done = call(random_pair.draft, "--target", random_pair.target, "--prompts", prompts, "--max-tokens", "30", "--json")
    assert done.returncode == 1
    document = checked(done.stdout)
    assert document["schema"] == "dspark-validate/1"
    assert [check["status"] for check in document["checks"]].count("fail") == 1
    assert len(document["acceptance"]["drafted"]) == 7


def test_json_of_files_that_never_ran(random_pair: PairFiles) -> None:
    broken = random_pair.broken(
        "no-mask", lambda want: want.kv.update({"tokenizer.ggml.mask_token_id": ("UINT32", 999)})
    )
    done = call(broken, "--target", random_pair.target, "--json")
    assert done.returncode == 1
    document = checked(done.stdout)
    assert (document["library"], document["acceptance"], document["lossless"]) == ({}, None, None)
    done = call(random_pair.target, "--target", random_pair.target, "--json")
    assert done.returncode == 3
    assert checked(done.stdout)["error"]["exit_code"] == 3


def test_comparison_with_the_checkpoint(bigram_pair: PairFiles, random_pair: PairFiles) -> None:
    options: list[str | Path] = [
        "--reference",
        bigram_pair.draft_dir,
        "--target-reference",
        bigram_pair.target_dir,
        "--max-tokens",
        "9",
    ]
    done = call(bigram_pair.draft, "--target", bigram_pair.target, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    names = ["metadata", "values", "features", "parity", "confidence"]
    assert [line[1] for line in lines if line and line[0] in names] == ["pass"] * 5
    rows = [line for line in lines if len(line) == 7 and line[0].isdigit()]
    assert [row[0] for row in rows] == list("0123456")
    assert "not compared" not in done.stdout
    assert all(float(row[5]) < 1e-3 and row[6] == "100.0%" for row in rows)
    # a random draft: nothing accepted, and yet the file is right
    done = call(random_pair.draft, "--target", random_pair.target, "--reference", random_pair.draft_dir, "--json")
    assert done.returncode == 1
    document = checked(done.stdout)
    assert [check["name"] for check in document["checks"] if check["status"] == "fail"] == ["acceptance"]
    assert len(document["parity"]["positions"]) == 7


def test_comparison_that_fails_tells_the_cause(bigram_pair: PairFiles) -> None:
    taps = {"dflash.target_layers": ("ARRAY[INT32]", [0, 1, 2])}
    broken = bigram_pair.broken("taps", lambda want: want.kv.update(taps))
    done = call(broken, "--target", bigram_pair.target, "--reference", bigram_pair.draft_dir, "--max-tokens", "5")
    assert done.returncode == 1
    assert "\nlikely: the file taps the inputs of layers [0, 1, 2], the checkpoint those of [1, 2, 3]" in done.stdout


def test_quiet_tells_only_what_failed(random_pair: PairFiles, bigram_pair: PairFiles) -> None:
    done = call(random_pair.draft, "--target", random_pair.target, "--quiet")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: acceptance: ")
    done = call(bigram_pair.draft, "--target", bigram_pair.target, "--quiet", "--max-tokens", "10")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("draft", "options", "code", "words"),
    [
        ("draft", [], 2, "--target"),
        ("draft", ["--target", "none.gguf"], 2, "none.gguf"),
        ("draft", ["--target", "target", "--max-tokens", "1"], 2, "--max-tokens"),
        ("draft", ["--target", "target", "--memory", "inf"], 2, "--memory"),
        ("draft", ["--target", "target", "--memory", "nan"], 2, "--memory"),
        ("draft", ["--target", "target", "--timeout", "nan"], 2, "--timeout"),
        ("draft", ["--target", "target", "--lib", "nowhere"], 2, "no file or directory nowhere"),
        ("draft", ["--target", "target", "--reference", "nowhere"], 2, "no directory nowhere"),
        ("draft", ["--target", "target", "--reference", "target_dir"], 3, "Qwen3ForCausalLM"),
        ("draft", ["--target", "target", "--target-reference", "target_dir"], 2, "give that too"),
        ("draft", ["--target", "target", "--memory", "0"], 2, "--memory"),
        ("draft", ["--target", "target", "--memory", "0.11"], 4, "allow more with --memory"),
        ("target", ["--target", "target"], 3, "if it is the target, give the draft instead"),
        ("draft", ["--target", "draft"], 3, "is itself a draft"),
        ("draft", ["--target", "target", "--prompts", "none.txt"], 2, "no prompts file none.txt"),
        ("draft", ["--target", "target", "--lib", "draft"], 4, "cannot be loaded as a library"),
    ],
)
def test_mistakes_end_in_one_message(
    random_pair: PairFiles, draft: str, options: list[str], code: int, words: str
) -> None:
    names = {
        "draft": str(random_pair.draft),
        "target": str(random_pair.target),
        "target_dir": str(random_pair.target_dir),
    }
    done = call(names[draft], *(names.get(option, option) for option in options))
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_is_quick_to_import() -> None:
    probe = (
        "import sys, dspark_convert.cli.validate;"
        "print([m for m in ('numpy', 'rich.table', 'ctypes', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reference_that_is_none(bigram_pair: PairFiles, tmp_path: Path) -> None:
    """A pointer, half a download and the target are told as dspark-convert tells them."""
    files = (bigram_pair.draft, "--target", bigram_pair.target, "--reference")
    done = call(*files, bigram_pair.target_dir)
    assert done.returncode == 3
    assert "is a full model (Qwen3ForCausalLM" in done.stderr
    shutil.copytree(bigram_pair.draft_dir, tmp_path / "draft")
    weights = tmp_path / "draft" / "model.safetensors"
    data = weights.read_bytes()
    for spoilt, words in ((b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"), (data[:-9], "cut short")):
        weights.write_bytes(spoilt)
        done = call(*files, tmp_path / "draft")
        assert done.returncode == 3
        assert words in done.stderr
