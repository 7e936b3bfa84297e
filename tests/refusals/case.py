"""One way of breaking the tiny pair and what a conversion has to say about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.checkpoints import Pair, Tensor, Tensors, snapshot, zeros
from tests.conftest import Convert

Damage = Callable[[Pair], object]


@dataclass(frozen=True)
class Case:
    """``errors`` are all findings of severity error as (rule, where), in any order; ``says`` are
    words of which each must stand in a message or remedy. Without ``errors`` the refusal is one
    message. ``warnings`` likewise, if given."""

    id: str
    damage: Damage
    errors: tuple[tuple[str, str], ...] = ()
    says: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    code: int = 3
    warnings: tuple[tuple[str, str], ...] | None = None


def config(**changes: Any) -> Damage:
    return lambda pair: pair.config(changes)


def tensors(*changes: Callable[[Tensors], object]) -> Damage:
    def damage(pair: Pair) -> None:
        for change in changes:
            pair.tensors(change)

    return damage


def both(*damages: Damage) -> Damage:
    return lambda pair: [damage(pair) for damage in damages]


def without(*names: str) -> Callable[[Tensors], object]:
    return lambda tensors: [tensors.pop(name) for name in names]


def put(name: str, dtype: str, *shape: int, fill: bytes | None = None) -> Callable[[Tensors], object]:
    """Add or replace a tensor by zeros, or by the element ``fill`` everywhere."""

    def change(tensors: Tensors) -> None:
        tensor = zeros(dtype, *shape)
        if fill is not None:
            tensor = Tensor(dtype, shape, fill * (len(tensor.data) // len(fill)))
        tensors[name] = tensor

    return change


def poke(name: str, index: int, element: bytes) -> Callable[[Tensors], object]:
    """Replace one element of a tensor."""

    def change(tensors: Tensors) -> None:
        data = bytearray(tensors[name].data)
        data[index * len(element) : (index + 1) * len(element)] = element
        tensors[name] = tensors[name]._replace(data=bytes(data))

    return change


def check_refused(case: Case, pair: Pair, convert: Convert) -> None:
    """The case is refused as it says, nothing is written and the previous output is whole."""
    out = pair.root / "out.gguf"
    out.write_bytes(b"the previous file")
    case.damage(pair)
    before = snapshot(pair.root)
    target = () if "--target-gguf" in case.args else ("--target-model-dir", str(pair.target))
    args = [arg.replace("PAIR", str(pair.root)) for arg in case.args]
    ended = convert(pair.draft, *target, "-o", out, "--force", "--json", *args)
    assert snapshot(pair.root) == before
    assert ended.document["schema"] == "dspark-convert/1"
    assert sorted(ended.findings("error")) == sorted(case.errors), ended.told
    if case.warnings is not None:
        assert sorted(ended.findings("warning")) == sorted(case.warnings), ended.told
    for words in case.says:
        assert words in ended.told
    assert ended.code == ended.document["error"]["exit_code"] == case.code
    assert ended.document["error"]["message"]
    # One plain sentence each, for people too.
    for line in ended.told.splitlines():
        assert len(line) < 700
    assert "Traceback" not in ended.err
