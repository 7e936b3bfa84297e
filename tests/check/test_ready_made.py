"""What is ready-made runs: the example's workflow with the action in it, the pre-commit hook, the pytest fixture.

A made-up repository publishes three drafts: a sound one, one whose taps are off by one, one that lost a tensor.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from dspark_convert.check.pytest_plugin import Checker
from dspark_convert.errors import UsageError
from tests.check.places import ROOT, write
from tests.checkpoints import read_tensors, write_tensors

EXAMPLE = ROOT / "examples" / "publish"
BIN = Path(sys.executable).parent
LOST = "layers.1.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three ways share a cache, as on one machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("publisher")
    shutil.copytree(EXAMPLE, root, dirs_exist_ok=True)
    pair = ROOT / "fixtures" / "pair"
    for name in ("target.gguf", "prompts.txt"):
        shutil.copy(pair / name, root)
    for name in ("one", "two", "three"):
        shutil.copytree(pair / "draft", root / "drafts" / name)
    two = root / "drafts" / "two.gguf"
    command = [BIN / "dspark-convert", root / "drafts" / "two", "--target-gguf", root / "target.gguf", "-o", two, "-q"]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    data = two.read_bytes()
    assert data.count(taps(1, 2, 3)) == 2
    two.write_bytes(data.replace(taps(1, 2, 3), taps(0, 1, 2)))
    shard = root / "drafts" / "three" / "model.safetensors"
    tensors = read_tensors(shard)
    del tensors[LOST]
    write_tensors(shard, tensors)
    return root


def taps(*layers: int) -> bytes:
    """An array of int32 as a GGUF has it."""
    return struct.pack(f"<IIQ{len(layers)}i", 9, 5, len(layers), *layers)


def replaced(text: str, values: Mapping[str, str]) -> str:
    """With every ``${{ … }}`` of a workflow; KeyError for one that the runner would not know."""
    return re.sub(r"\$\{\{ *(.+?) *\}\}", lambda match: values[match[1]], text)


def stub_python(root: Path) -> Path:
    """A Python whose ``-m venv`` gives the environment of this test, and whose pip writes down what it is told."""
    pip = write(root / "pip", f'#!/bin/sh\nprintf "%s\\n" "$@" > {root}/installed\n')
    python = f'#!/bin/sh\ntest "$1 $2" = "-m venv"\nmkdir -p "$3/bin"\nln -s {pip} {BIN}/dspark-check "$3/bin"\n'
    path = write(root / "python", python)
    for script in (pip, path):
        script.chmod(0o755)
    return path


def act(steps: list[dict[str, Any]], values: Mapping[str, str], root: Path, runner: Path) -> int:
    """Run the steps as GitHub's runner does (bash -e), up to the first that fails; its exit code."""
    for step in steps:
        environment = {name: replaced(text, values) for name, text in step["env"].items()}
        done = subprocess.run(
            [step["shell"], "--noprofile", "--norc", "-eo", "pipefail", "-c", replaced(step["run"], values)],
            cwd=root,
            env=os.environ
            | {"RUNNER_TEMP": str(runner), "GITHUB_STEP_SUMMARY": str(runner / "summary.md")}
            | environment,
            timeout=120,
            check=False,
        )
        if done.returncode:
            return done.returncode
    return 0


def test_the_workflow_passes_one_and_tells_what_is_wrong_with_two(repository: Path, tmp_path: Path) -> None:
    workflow = yaml.safe_load((repository / ".github" / "workflows" / "drafts.yml").read_text("utf-8"))
    steps = workflow["jobs"]["check"]["steps"]
    used = [step.get("uses", "").partition("@")[0] for step in steps]
    ours = steps[used.index("OWNER/dspark-convert")]
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    given = {name: value["default"] for name, value in action["inputs"].items()}
    assert set(ours["with"]) <= set(given)
    given |= ours["with"] | {"python": str(stub_python(tmp_path))}
    values = {f"inputs.{name}": value for name, value in given.items()} | {"github.action_path": str(ROOT)}
    assert action["runs"]["using"] == "composite"

    assert act(action["runs"]["steps"], values, repository, tmp_path) == 1

    installed = (tmp_path / "installed").read_text().split()
    assert installed == ["install", "--quiet", "-c", f"{ROOT}/constraints.txt", f"{ROOT}[validate]"]
    uploaded = steps[used.index("actions/upload-artifact")]
    assert uploaded["if"] == "always()"
    suites = ET.parse(repository / uploaded["with"]["path"]).getroot()  # noqa: S314 - written by us
    assert {key: suites.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "2",
        "errors": "0",
    }
    cases = {case.get("classname"): case for case in suites.iter("testcase")}
    assert cases["one"].find("failure") is None
    assert "validate: pass" in (cases["one"].findtext("system-out") or "")
    assert "inspect: taps is [0, 1, 2], expected is [1, 2, 3]." in (cases["two"].findtext("failure") or "")
    lost = cases["three"].find("failure")
    assert lost is not None
    assert LOST in (lost.text or "") and "[tensor-missing]" in (lost.text or "")
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert summary.startswith("### 3 checks: 1 passed, 2 failed\n")
    assert "| one | auto | ok | ok | ok | ok |" in summary
    assert "taps is &#91;0, 1, 2&#93;" in summary


def test_the_hook_runs_and_tells_what_failed(repository: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert hook["entry"] in scripts
    done = subprocess.run(
        [BIN / hook["entry"], *hook["args"]], cwd=repository, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "two auto: fail\n  inspect: taps is [0, 1, 2], expected is [1, 2, 3].\n" in done.stderr
    assert "one auto" not in done.stderr
    for path in (
        "CHECKS.toml",
        "drafts/one/config.json",
        "t/tokenizer.json",
        "a.gguf",
        "x/model-1.safetensors",
        "plans/a.json",
    ):
        assert re.search(hook["files"], path)
    assert not re.search(hook["files"], "README.md")


def test_the_fixture_of_pytest(repository: Path) -> None:
    page = (ROOT / "docs" / "check.md").read_text("utf-8")
    (documented,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    write(
        repository / "test_drafts.py",
        'def test_one(dspark_check):\n    (result,) = dspark_check("CHECKS.toml", "one")\n'
        "    assert result.step('validate').status == 'pass'\n"
        f"{documented}",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_drafts.py"],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "two auto: inspect: taps is [0, 1, 2], expected is [1, 2, 3]." in done.stdout
    assert "three auto: plan: " in done.stdout


def test_the_fixture_of_pytest_knows_no_other_names(repository: Path, dspark_check: Checker) -> None:
    with pytest.raises(UsageError, match="ones names none of the checks"):
        dspark_check(repository / "CHECKS.toml", "one", "ones")


def test_the_action_takes_arguments_on_all_lines(tmp_path: Path) -> None:
    """YAML's block of several lines comes as one input with line ends in it; nothing in it is run."""
    (_, step) = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["runs"]["steps"]
    script = write(tmp_path / "dspark-check" / "bin" / "dspark-check", '#!/bin/sh\nprintf "<%s>" "$@"\n')
    script.chmod(0o755)
    values = {
        "CHECKS": "my checks.toml",
        "JUNIT": "$(touch no).xml",
        "GITHUB_STEP_SUMMARY": "s",
        "RUNNER_TEMP": str(tmp_path),
    }
    for arguments, told in (("--only a\n  --only $(id)\n", "<--only><a><--only><$(id)>"), ("", "")):
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env=os.environ | values | {"ARGUMENTS": arguments},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"<my checks.toml><--junit><$(touch no).xml><--markdown><s>{told}"
    assert not (tmp_path / "no").exists()
