"""The reference shares no code with what it judges."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import dspark_convert.reference

FILES = sorted(Path(dspark_convert.reference.__file__).parent.glob("*.py"))


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            names.add(node.module or "")
    return names


def test_imports_nothing_of_the_converter() -> None:
    own = {name for path in FILES for name in imported(path) if name.split(".")[0] in ("dspark_convert", "arch_specs")}
    assert own and all(f"{name}.".startswith("dspark_convert.reference.") for name in own)


def test_running_it_loads_nothing_of_the_converter() -> None:
    code = (
        "import sys, dspark_convert.reference.draft, dspark_convert.reference.target;"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('dspark_convert', 'arch_specs')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    modules = {f"dspark_convert.reference.{path.stem}" for path in FILES if path.stem != "__init__"}
    assert set(found) == {"dspark_convert", "dspark_convert.reference", *modules}
