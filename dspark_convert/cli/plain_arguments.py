"""Reads a plain command line as typer would, but without pydantic, whose imports take 60 ms.

Plain is what names each option in full, gives it a sound value and leaves out nothing. All else is typer's to read:
``--help``, mistakes, and what is rare.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, ParameterInfo

#: what may be said of a parameter, beside its type, that is understood here or changes the help alone
_UNDERSTOOD = {"default", "param_decls", "help", "metavar", "min", "max", "callback", "is_eager"}

#: the digits of an integer that is read here; no option takes one of more
_MAX_DIGITS = 18


class _NotPlain(Exception):
    """Typer has to look at it."""


def plain_arguments(command: Callable[..., Any], arguments: Sequence[str]) -> dict[str, Any] | None:
    """What typer would call ``command`` with; None if typer has to look at ``arguments``."""
    try:
        return _read(_Parameters(command), arguments)
    except _NotPlain:
        return None


class _Parameters:
    """The options and arguments of a command, by the annotations of its parameters."""

    def __init__(self, command: Callable[..., Any]) -> None:
        self.defaults: dict[str, Any] = {}
        self.kinds: dict[str, tuple[Any, ParameterInfo]] = {}
        self.positional: list[str] = []
        #: by spelling: the parameter, and of a flag what it says
        self.options: dict[str, tuple[str, bool | None]] = {}
        hints = get_type_hints(command, include_extras=True)
        for name, parameter in inspect.signature(command).parameters.items():
            info = next(iter(getattr(hints[name], "__metadata__", ())), None)
            if not isinstance(info, ParameterInfo):
                raise _NotPlain
            self.defaults[name] = parameter.default
            self.kinds[name] = _kind(hints[name].__origin__), info
            if isinstance(info, ArgumentInfo):
                _require_understood(info, typer.Argument())
                self.positional.append(name)
            else:
                _require_understood(info, typer.Option())
                self._add_option(name, info)

    def _add_option(self, name: str, info: ParameterInfo) -> None:
        is_flag = self.kinds[name][0] is bool
        long = name.replace("_", "-")
        for spelling in info.param_decls or ([f"--{long}/--no-{long}"] if is_flag else [f"--{long}"]):
            on, _, off = spelling.partition("/")
            self.options[on] = (name, True if is_flag else None)
            if off:
                self.options[off] = (name, False)


def _read(parameters: _Parameters, arguments: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    free: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-"):
            free.append(argument)
            continue
        spelling, equals, text = argument.partition("=")
        if spelling not in parameters.options or (equals and not spelling.startswith("--")):
            raise _NotPlain
        name, says = parameters.options[spelling]
        kind, info = parameters.kinds[name]
        if info.callback or (equals and says is not None):
            raise _NotPlain
        values[name] = says if says is not None else _value(kind, info, text if equals else next(rest, ""))
    if len(free) != len(parameters.positional):
        raise _NotPlain
    values |= {
        name: _value(*parameters.kinds[name], text) for name, text in zip(parameters.positional, free, strict=True)
    }
    values = parameters.defaults | values
    if inspect.Parameter.empty in values.values():
        raise _NotPlain
    return values


def _kind(hint: Any) -> Any:
    """The type of a value that is given: X of ``X | None``. A list is filled in another way."""
    if isinstance(hint, UnionType):
        hint, *others = (kind for kind in get_args(hint) if kind is not NoneType)
        if others:
            raise _NotPlain
    if get_origin(hint) not in (None, Literal):
        raise _NotPlain
    return hint


def _require_understood(info: ParameterInfo, empty: ParameterInfo) -> None:
    """A callback may stand at an option like --version alone, which acts only where it is given."""
    if any(value != getattr(empty, name) for name, value in vars(info).items() if name not in _UNDERSTOOD):
        raise _NotPlain
    if info.callback and not info.is_eager:
        raise _NotPlain


def _value(kind: Any, info: ParameterInfo, text: str) -> Any:
    if not text or text.startswith("-") or any("\ud800" <= character <= "\udfff" for character in text):
        raise _NotPlain
    if kind is str:
        return text
    if kind is Path and (os.access(text, os.R_OK) or not os.path.lexists(text)):
        return Path(text)
    if get_origin(kind) is Literal and text in get_args(kind):
        return text
    if kind is int and text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS:
        number = int(text)
        if (info.min is None or number >= info.min) and (info.max is None or number <= info.max):
            return number
    raise _NotPlain
