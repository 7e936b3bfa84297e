"""The ``data.pkl`` of torch.save, read without unpickling it.

A pickle is a program that may call anything. This reads its opcodes one by one (``pickletools``, which only
parses) and knows those alone that dictionaries and tensors need; a name of a function is a text here, and three of
them have a meaning. Nothing is imported and nothing called, whatever the file says.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dspark_convert.source.torch_archive import Unreadable
from dspark_convert.words import shown

#: a dictionary with a tensor takes 200
MAX_PICKLE_BYTES = 1 << 16
MAX_DIMENSIONS = 8

#: class of a storage -> safetensors dtype of its numbers
STORAGES = {
    "torch FloatStorage": "F32",
    "torch HalfStorage": "F16",
    "torch BFloat16Storage": "BF16",
    "torch DoubleStorage": "F64",
}
TENSOR, PARAMETER = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
ORDERED_DICT = "collections OrderedDict"
KNOWN = {*STORAGES, TENSOR, PARAMETER, ORDERED_DICT}


@dataclass(frozen=True, eq=False)
class Named:
    """A class or function: module and name."""

    name: str


@dataclass(frozen=True, eq=False)
class Storage:
    """``count`` numbers of ``dtype`` in the entry ``data/<key>``."""

    dtype: str
    key: str
    count: int


@dataclass(frozen=True, eq=False)
class Tensor:
    """``first`` and ``strides`` count numbers of the storage."""

    storage: Storage
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_pickle(data: bytes) -> Any:
    """What the pickle holds: dictionaries (keys are texts), lists, tuples, Tensors and plain values.

    Raises Unreadable for one that holds, or does, anything else.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except Unreadable:
        raise
    except (ValueError, IndexError, KeyError, TypeError) as fault:
        raise Unreadable("its data.pkl is damaged") from fault
    raise Unreadable("its data.pkl is damaged")


class _Machine:
    """The stack of a pickle, where the arguments of its next opcodes begin on it, and what it has put aside."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        return self.stack.pop()

    def step(self, name: str, argument: Any) -> None:
        if name in _PUSHED:
            self.stack.append(argument)
        elif name in _MADE:
            self.stack.append(_MADE[name]())
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in _NOTHING:
            raise Unreadable(f"its data.pkl does what no tensor needs (opcode {name})")

    def since_mark(self) -> list[Any]:
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def put(self, index: int | None) -> None:
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def items(self, items: list[Any]) -> None:
        held = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(held, dict) or not isinstance(key, str):
                raise TypeError
            held[key] = value

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise TypeError
        self.stack[-1].extend(items)

    def named(self, name: str) -> None:
        if name not in KNOWN:
            raise Unreadable(f"its data.pkl wants to load {shown(name.replace(' ', '.'))}, which no tensor needs")
        self.stack.append(Named(name))

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Named) or not isinstance(arguments, tuple):
            raise TypeError
        if function.name == ORDERED_DICT and not arguments:
            self.stack.append({})
        elif function.name == PARAMETER and isinstance(arguments[0], Tensor):
            self.stack.append(arguments[0])
        elif function.name == TENSOR:
            self.stack.append(_tensor(*arguments[:4]))
        else:
            raise TypeError

    def build(self) -> None:
        """What hangs on a dictionary of a module's state, which says nothing of its tensors."""
        self.pop()
        if not isinstance(self.stack[-1], dict):
            raise TypeError

    def storage(self) -> None:
        what, kind, key, _, count = self.pop()
        if what != "storage" or not isinstance(kind, Named) or not isinstance(key, str) or not _is_count(count):
            raise TypeError
        self.stack.append(Storage(STORAGES[kind.name], key, count))


def _tensor(storage: Any, first: Any, shape: Any, strides: Any) -> Tensor:
    if not isinstance(storage, Storage) or not len(shape) == len(strides) <= MAX_DIMENSIONS:
        raise TypeError
    if not all(map(_is_count, (first, *shape, *strides))):
        raise TypeError
    return Tensor(storage, first, shape, strides)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


_PUSHED = {"BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_NOTHING = {"PROTO", "FRAME"}
_MADE: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "SETITEM": lambda machine, _: machine.items(list(reversed([machine.pop(), machine.pop()]))),
    "SETITEMS": lambda machine, _: machine.items(machine.since_mark()),
    "APPEND": lambda machine, _: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "GLOBAL": _Machine.named,
    "STACK_GLOBAL": lambda machine, _: machine.named(" ".join(reversed([machine.pop(), machine.pop()]))),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.storage(),
}
