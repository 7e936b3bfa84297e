"""Modules import downward only, by the table of docs/architecture.md, and stay short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dspark_convert

PACKAGE = Path(dspark_convert.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text("utf-8")

#: row of each room, from the top down
ROWS = {
    room: number
    for number, row in enumerate(re.findall(r"^\| ((?:`\w+` )+)\|", PAGE, re.MULTILINE))
    for room in re.findall(r"`(\w+)`", row)
}
MODULES = sorted(PACKAGE.rglob("*.py"))
ASIDE = "reference"


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(path: Path) -> Iterator[str]:
    """The rooms that a module imports from, its own too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, path
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            parts = name.split(".")
            if parts[0] == "dspark_convert" and parts[1:] not in ([], ["__version__"]):
                yield parts[1]


def test_every_room_is_in_the_table_and_no_other() -> None:
    assert {room_of(path) for path in MODULES} - {"__init__"} == ROWS.keys() | {ASIDE}


def test_imports_run_downward() -> None:
    wrong = {
        f"{path.relative_to(PACKAGE)} imports {room}"
        for path in MODULES
        for room in imported(path)
        if room != room_of(path) and ROWS.get(room, -1) < ROWS.get(room_of(path), -1)
        if room != ASIDE
    }
    assert wrong == set()


def test_the_reference_shares_nothing_with_the_converter() -> None:
    for path in MODULES:
        rooms = set(imported(path))
        if room_of(path) == ASIDE:
            assert rooms <= {ASIDE}, path
        elif ASIDE in rooms:
            assert room_of(path) == "runtime", path


def test_modules_are_short() -> None:
    assert [path for path in MODULES if len(path.read_text("utf-8").splitlines()) > 300] == []
