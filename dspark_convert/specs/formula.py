"""The little language of arch specs: arithmetic over a draft's sizes and its tensors' shapes.

Names are field values; ``has('tensor')`` says whether the checkpoint holds a tensor, ``rows`` and
``cols`` give its first and last axis (0 if it is missing), ``count(name)`` the length of a list.
``numbered('blocks.{layer}.')`` is one more than the highest number that stands for ``{layer}`` at
the start of a tensor's name (0 if there is none); ``{last}`` in a tensor's name is ``n_layer - 1``.
``whole`` cuts a number down to an integer, ``root`` is the square root.
Nothing else can be called or reached, so a spec from anywhere is data, not code.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
T = TypeVar("T")

FUNCTIONS = ("has", "rows", "cols", "numbered", "count", "whole", "root")


class FormulaError(ValueError):
    """A formula that the language does not know, or that cannot be computed."""


class NoValueError(FormulaError):
    """A name that has no value: its field is missing or bad, of which there is an error, or was left out."""


def evaluate(text: str, names: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The value of formula ``text``; raises FormulaError."""
    return _guarded(text, lambda: _value(_tree(text), names, shapes))


@cache
def names_of(text: str) -> frozenset[str]:
    """The names that a formula has to know; raises FormulaError if it is not of the language."""
    return _guarded(text, lambda: frozenset(_names(_tree(text))))


def in_order(formulas: Mapping[str, str | None]) -> list[str]:
    """Names in the order in which their ``formulas`` can be computed, else in their own."""
    done: list[str] = []
    waiting = list(formulas)
    needs = {name: names_of(formula) if formula else frozenset() for name, formula in formulas.items()}
    while waiting:
        left = set(waiting)
        ready = next((name for name in waiting if not needs[name] & left - {name}), waiting[0])
        waiting.remove(ready)
        done.append(ready)
    return done


@cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _guarded(text: str, compute: Callable[[], T]) -> T:
    try:
        return compute()
    except FormulaError:
        raise
    except (SyntaxError, ValueError, TypeError, ArithmeticError) as e:
        what = e.msg if isinstance(e, SyntaxError) else str(e)
        raise FormulaError(f"the formula {text!r} cannot be computed: {what}") from None
    except (RecursionError, MemoryError):  # how Python's parser says that text nests too deeply
        raise FormulaError("a formula nests too deeply") from None


def _names(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.Name(id=name):
            yield name
        case ast.Call(
            func=ast.Name(id="has" | "rows" | "cols"), args=[ast.Constant(value=str() as tensor)], keywords=[]
        ):
            if "{last}" in tensor:
                yield "n_layer"
        case ast.Call(func=ast.Name(id="numbered"), args=[ast.Constant(value=str())], keywords=[]):
            return
        case ast.Call(func=ast.Name(id="count"), args=[ast.Name(id=listed)], keywords=[]):
            yield listed
        case ast.Call(func=ast.Name(id="whole" | "root"), args=[number], keywords=[]):
            yield from _names(number)
        case ast.Compare(ops=[op]) if type(op) in _COMPARE:
            yield from _below(node)
        case ast.BinOp(op=op) if type(op) in _BINARY:
            yield from _below(node)
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.IfExp():
            yield from _below(node)
        case _:
            raise FormulaError(f"{ast.unparse(node)!r} is not part of the formula language")


def _below(node: ast.expr) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _names(child)


def _value(node: ast.expr, names: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Any:
    def value(child: ast.expr) -> Any:
        return _value(child, names, shapes)

    match node:
        case ast.Constant(value=bool() | int() | float() | str() as constant):
            return constant
        case ast.Name(id=name):
            if name not in names:
                raise NoValueError(f"{name} is not known")
            return names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_number(value(left)), _number(value(right)))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](value(left), value(right))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(value(part) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(value(part) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not value(operand)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return value(body) if value(test) else value(orelse)
        case ast.Call(func=ast.Name(id="count"), args=[ast.Name() as listed], keywords=[]):
            return len(value(listed))
        case ast.Call(func=ast.Name(id="whole"), args=[number], keywords=[]):
            return int(_number(value(number)))
        case ast.Call(func=ast.Name(id="root"), args=[number], keywords=[]):
            return math.sqrt(_number(value(number)))
        case ast.Call(func=ast.Name(id="has"), args=[ast.Constant(value=str() as tensor)], keywords=[]):
            return _named(tensor, names) in shapes
        case ast.Call(func=ast.Name(id="rows"), args=[ast.Constant(value=str() as tensor)], keywords=[]):
            return (shapes.get(_named(tensor, names)) or (0,))[0]
        case ast.Call(func=ast.Name(id="cols"), args=[ast.Constant(value=str() as tensor)], keywords=[]):
            return (shapes.get(_named(tensor, names)) or (0,))[-1]
        case ast.Call(func=ast.Name(id="numbered"), args=[ast.Constant(value=str() as start)], keywords=[]):
            return _numbered(start, shapes)
    raise FormulaError(f"{ast.unparse(node)!r} is not part of the formula language")


def _named(tensor: str, names: Mapping[str, Any]) -> str:
    if "{last}" not in tensor:
        return tensor
    if "n_layer" not in names:
        raise NoValueError("n_layer is not known")
    return tensor.replace("{last}", str(names["n_layer"] - 1))


def _numbered(start: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
    before, _, after = start.partition("{layer}")
    # Nine digits: more number nothing, and Python refuses to read very many.
    pattern = re.compile(rf"{re.escape(before)}(\d{{1,9}}){re.escape(after)}", re.ASCII)
    return max((int(match[1]) + 1 for name in shapes if (match := pattern.match(name))), default=0)


def _number(value: Any) -> Any:
    # Python would also multiply and format strings and lists, to any length.
    if not isinstance(value, int | float):
        raise TypeError(f"arithmetic with {type(value).__name__}")
    return value
