"""docs/check.md tells of every key and step, and its file of checks can be read."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from dspark_convert.check.checks import STEPS
from dspark_convert.check.reading import read_checks
from dspark_convert.check.values import CHECK, EXPECT
from tests.check.places import ROOT, run_checks, write

PAGE = (ROOT / "docs" / "check.md").read_text("utf-8")


def rows() -> set[str]:
    """What stands in backticks in the first columns of its tables."""
    return {
        name
        for line in PAGE.splitlines()
        if line.startswith("| `")
        for name in re.findall("`(.+?)`", line.split("|")[1])
    }


def test_every_key_is_documented_and_no_other() -> None:
    assert rows() == {*CHECK, *EXPECT, *STEPS}


def test_the_first_command_on_the_page_writes_a_file_of_checks(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fixtures" / "pair", tmp_path, dirs_exist_ok=True)
    (block,) = re.findall(r"```sh\n(.+?)```", PAGE, re.DOTALL)
    first, second = block.splitlines()
    assert run_checks(*first.split()[1:], cwd=tmp_path).code == 0
    (check,) = read_checks(tmp_path / second.split()[1])
    assert (check.outtypes, check.steps) == (("bf16", "q8_0"), ("plan",))


def test_the_file_on_the_page_is_right(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL)
    assert len(blocks) == 1
    (tmp_path / "drafts" / "dspark_qwen3_8b_block7").mkdir(parents=True)
    for name in ("Qwen3-8B-Q8_0.gguf", "plans/qwen3-8b-bf16.json", "plans/qwen3-8b-q8_0.json"):
        write(tmp_path / name, "")
    (check,) = read_checks(write(tmp_path / "CHECKS.toml", blocks[0]))
    assert check.expected.max_size == 3_000_000_000
