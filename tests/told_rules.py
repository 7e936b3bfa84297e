"""Which rules the source tells of, and which the tests do: read out of the syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

SEVERITIES = ("error", "warning", "info")

#: one place that tells: rule id (``*`` for what is computed) and severity
Told = tuple[str, str]


def told(package: Path) -> dict[Told, list[str]]:
    """Every rule and severity told in ``package``, with the places; raises ValueError at a call that hides its id."""
    found: dict[Told, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        if path.name == "findings.py":
            continue  # defines the three functions
        for rule, severity, line in _calls(tree, path):
            found.setdefault((rule, severity), []).append(f"{path.relative_to(package)}:{line}")
    return found


def _calls(tree: ast.Module, path: Path) -> Iterator[tuple[str, str, int]]:
    names = _imported(tree) | _chosen(tree)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names):
            continue
        rule = _rule(node.args[0], constants)
        if rule is None:
            raise ValueError(f"{path}:{node.lineno}: the rule of {ast.unparse(node)[:80]} cannot be read.")
        for severity in names[node.func.id] if rule else ():
            yield rule, severity, node.lineno


def _imported(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """The local names of error, warning and info."""
    return {
        alias.asname or alias.name: (alias.name,)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "dspark_convert.findings"
        for alias in node.names
        if alias.name in SEVERITIES
    }


def _chosen(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """Names given to one of the functions or another: ``tell = warning if … else error``."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
            both = [n.id for n in (node.value.body, node.value.orelse) if isinstance(n, ast.Name)]
            if len(both) == 2 and set(both) <= set(SEVERITIES):
                found |= {target.id: tuple(both) for target in node.targets if isinstance(target, ast.Name)}
    return found


def _rule(node: ast.expr, constants: Mapping[str, object]) -> str | None:
    """The id; "" for that of another finding, which is told elsewhere."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name) and node.id in constants:
        return str(constants[node.id])
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)
    return "" if isinstance(node, ast.Attribute) and node.attr == "rule" else None


def named(tests: Path, *, but: Path) -> set[str]:
    """All texts in ``tests`` that could be a rule's id, alone or in brackets as findings are printed."""
    found: set[str] = set()
    for path in tests.rglob("*.py"):
        if path == but:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                found.add(text)
                if "[" in text:
                    found |= {part.partition("]")[0] for part in text.split("[")[1:]}
    return found
