"""README.md and the pages of docs/ tell the truth: their commands run, and their output is what is printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.readme import PAGES, ROOT, Block, blocks, follow, main, render

README = (ROOT / "README.md").read_text("utf-8")
NOT_RUN = "not run: "
#: text that no program reads: output made by hand, and what build.py makes
SHOWN = {"text"}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the tour tells to make."""
    place = tmp_path_factory.mktemp("pages") / "tour"
    main([str(place)])
    return place


def shape(text: str) -> str:
    """Text without what may differ from machine to machine: figures, and the widths that follow them."""
    return re.sub(r"[─█▏▎▍▌▋▊▉◆ ]+", " ", re.sub(r"\d[\d.,]*(e[-+]\d+)?", "#", text))


def command(name: str) -> str:
    found = re.search(rf"<!-- {name} command -->\n+```sh\n(.+?)\n```", README)
    assert found, name
    return found[1]


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_commands_run_and_outputs_are_current(page: Path, master: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    place = shutil.copytree(master, tmp_path / "place") if any(blocks(text)) else tmp_path
    assert shape(render(text, place)) == shape(text)


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_every_block_is_of_a_kind_that_is_looked_at(page: Path) -> None:
    text = page.read_text("utf-8")
    found = list(blocks(text))
    assert len(re.findall("^ *```", text, re.MULTILINE)) == 2 * len(found)
    assert {block.kind for block in found} <= SHOWN | {"sh", "console", "python", "toml", "json", "yaml"}
    for block in found:
        assert block.kind != "console" or block.mark.startswith("output: "), block
        assert block.kind != "sh" or re.match(rf"$|{NOT_RUN}|(main|test) command$", block.mark), block


def test_few_blocks_are_not_run_and_each_has_a_reason() -> None:
    found = [block for page in PAGES for block in blocks(page.read_text("utf-8"))]
    left_out = [block for block in found if NOT_RUN in block.mark]
    run = [block for block in found if block.kind in ("sh", "console", "python")]
    assert len(left_out) <= 8 <= len(run) / 3
    for block in left_out:
        reason = block.mark.removeprefix(NOT_RUN)
        assert len(reason.split()) >= 5
        for name in re.findall(r"\b(?:tests|docs)/\S+?\.\w+", reason):
            assert (ROOT / name).is_file(), name


def test_a_block_that_fails_is_seen(tmp_path: Path) -> None:
    wrong = [
        Block("", "sh", "true\ndspark-inspect nothing.gguf\ntrue\n"),
        Block("", "sh", "false | cat\n"),
        Block("", "python", "def test():\n    assert False\n"),
        Block("", "toml", "a = \n"),
        Block("", "json", "{,}"),
        Block("", "yaml", "a: [\n"),
    ]
    for block in wrong:
        with pytest.raises(Exception, match=r"."):
            follow(block, tmp_path)
    follow(Block("not run: because", "sh", "false"), tmp_path)
    page = "<!-- output: dspark-inspect nothing.gguf -->\n```console\nfine\n```\n"
    assert shape(render(page, tmp_path)) != shape(page)


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="exists already"):
        main([str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), (page.name, link)


def test_the_index_names_every_page_once() -> None:
    entries = re.findall(r"^\* \[(.+?)\]\((.+?)\): \S", (ROOT / "docs" / "README.md").read_text("utf-8"), re.MULTILINE)
    pages = sorted(page.name for page in PAGES if page.name != "README.md")
    assert sorted(link for _, link in entries) == sorted(name for name, _ in entries) == pages


def test_main_command_ends_in_a_table_of_acceptance(tmp_path: Path) -> None:
    install, main_command = command("main").rsplit(" && ", 1)
    assert "-c constraints.txt" in install
    program, *arguments = main_command.split()
    done = subprocess.run(
        [Path(sys.executable).parent / Path(program).name, *arguments, "-o", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +\d ", line)]
    assert [int(row[0]) for row in rows] == list(range(7))
    assert float(rows[0][3]) >= 0.5
    assert float(rows[-1][3]) >= 0.2


def test_ci_runs_the_test_command() -> None:
    assert command("test").endswith("python -m tests")
    assert "README.md" in (ROOT / ".ci" / "run").read_text("utf-8")
