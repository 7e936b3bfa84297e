"""Every message in the source ends with a full stop, be it a finding's or an exception's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dspark_convert

PACKAGE = Path(dspark_convert.__file__).parent
RAISED = {"InputError", "UsageError", "EnvironmentFault"}
FOUND = {"error", "warning", "info", "tell"}
#: the child's refusals, which runtime/diagnosis.py ends with what llama.cpp logged
COMPLETED = {"context.py", "session.py", "server_worker.py"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name not in COMPLETED)


def messages(function: ast.AST) -> Iterator[ast.expr]:
    """What is handed over as a message, where need be from the variable that holds it."""
    names = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = node.args[:1] if called in RAISED else node.args[2:3] if called in FOUND else []
        yield from (message for message in given if not isinstance(message, ast.Name))
        names |= {message.id for message in given if isinstance(message, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names:
            yield node.value


def is_whole(message: ast.expr) -> bool:
    """Whether it ends with a full stop, or with another message."""
    last = message.values[-1] if isinstance(message, ast.JoinedStr) else message
    if isinstance(last, ast.Constant):
        return str(last.value).endswith(".")
    if isinstance(last, ast.FormattedValue):
        return ast.unparse(last.value).endswith(("fault", "message"))
    return True  # handed on from elsewhere


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_full_stops(path: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
    found = [message for function in functions for message in messages(function)]
    assert [ast.unparse(message) for message in found if not is_whole(message)] == []
