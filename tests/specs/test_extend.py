"""What a family has of its backbone's table, and what it says otherwise."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.specs.extend import extend
from dspark_convert.specs.formula import in_order

BASE = """
backbone = "plain"
tap_offset = 1

[fields]
size = { from = ["size"], type = "int", min = 1, formula = "2" }
rank = { from = ["rank"], type = "int" }

[derived]
twice = "2 * size"
shape = "twice + rank"

[config]
inert = ["seen", "left"]

[[require]]
key = "act"
allow = ["silu"]
reason = "one"

[[tensor]]
source = "a"
gguf = "a.weight"
shape = ["size"]

[[tensor]]
source = "b"
gguf = "b.weight"
shape = ["rank"]

[[zeros]]
gguf = "z.weight"
shape = ["size"]
when = "True"
reason = "two"

[[drop]]
source = "x*"
reason = "three"
"""

FAMILY = """
name = "family"
title = "Family"
extends = "plain"
"""


def whole(family: str) -> dict[str, Any]:
    return extend(tomllib.loads(BASE), tomllib.loads(FAMILY + family), "family.toml")


def test_a_family_that_says_nothing_is_its_backbone() -> None:
    table = whole("")
    assert {key for key in table if table[key]} == {*tomllib.loads(BASE), "name", "title"}
    assert all(table[key] == value for key, value in tomllib.loads(BASE).items())


def test_values_and_keys_of_a_field_are_the_familys() -> None:
    table = whole('tap_offset = 0\n[fields]\nsize = { formula = "3" }\nmore = { from = [], type = "int" }')
    assert table["tap_offset"] == 0
    assert table["fields"]["size"] == {"from": ["size"], "type": "int", "min": 1, "formula": "3"}
    assert list(table["fields"]) == ["size", "rank", "more"]


def test_a_list_is_one_by_its_key() -> None:
    own = '[[tensor]]\nsource = "c"\ngguf = "a.weight"\nshape = ["1"]\n[[tensor]]\nsource = "d"\ngguf = "d"\nshape = []'
    assert [entry["source"] for entry in whole(own)["tensor"]] == ["c", "b", "d"]
    own = '[[require]]\nkey = "act"\nallow = ["gelu"]\nreason = "own"'
    assert [entry["allow"] for entry in whole(own)["require"]] == [["gelu"]]


def test_a_familys_own_patterns_come_first() -> None:
    own = '[[drop]]\nsource = "xy"\nreason = "narrower"'
    assert [entry["source"] for entry in whole(own)["drop"]] == ["xy", "x*"]


def test_inert_keys_add_up() -> None:
    assert whole('[config]\ninert = ["own"]')["config"]["inert"] == ["seen", "left", "own"]
    assert whole('[config]\nnested = ["text"]\ninert = []')["config"]["nested"] == ["text"]


@pytest.mark.parametrize(
    ("name", "part", "left"),
    [
        ("rank", "fields", ["size"]),
        ("shape", "derived", ["twice"]),
        ("a.weight", "tensor", ["b"]),
        ("act", "require", []),
        ("z.weight", "zeros", []),
        ("x*", "drop", []),
        ("left", "config", ["seen"]),
    ],
)
def test_a_family_goes_without(name: str, part: str, left: list[str]) -> None:
    found = whole(f'without = ["{name}"]')[part]
    if part == "config":
        found = found["inert"]
    elif part == "tensor":
        found = [entry["source"] for entry in found]
    assert list(found) == left


def test_what_it_goes_without_it_may_have_of_its_own() -> None:
    table = whole('without = ["rank"]\n[fields]\nrank = { from = ["other"], type = "str" }')
    assert table["fields"]["rank"] == {"from": ["other"], "type": "str"}


def test_a_tensor_is_left_out_by_either_name_and_its_zeros_by_that_of_the_file() -> None:
    base = BASE.replace('gguf = "z.weight"', 'gguf = "b.weight"')

    def kept(name: str) -> tuple[list[str], list[str]]:
        family = tomllib.loads(FAMILY + f'without = ["{name}"]')
        table = extend(tomllib.loads(base), family, "family.toml")
        return [entry["gguf"] for entry in table["tensor"]], [entry["gguf"] for entry in table["zeros"]]

    assert kept("b.weight") == (["a.weight"], [])
    assert kept("b") == (["a.weight"], ["b.weight"])


def test_going_without_what_is_not_there_is_a_bug() -> None:
    with pytest.raises(
        EnvironmentFault, match=r"^family\.toml: without: the backbone has no sinks, wings to go without"
    ):
        whole('without = ["wings", "rank", "sinks"]')
    with pytest.raises(EnvironmentFault, match=r"no rnak to go without \(did you mean rank\?\)\.$"):
        whole('without = ["rnak"]')


@pytest.mark.parametrize(
    ("formulas", "order"),
    [
        ({"a": "1", "b": "a", "c": None}, ["a", "b", "c"]),
        ({"a": "b + count(c)", "b": "c if d else 1", "c": None, "d": "has('a')"}, ["c", "d", "b", "a"]),
        # one whose names nobody has, and two that wait for each other, stay where they are
        ({"a": "nothing", "b": "a"}, ["a", "b"]),
        ({"a": "b", "b": "a", "c": "1"}, ["c", "a", "b"]),
        ({"a": "a"}, ["a"]),
    ],
)
def test_order_of_formulas(formulas: dict[str, str | None], order: list[str]) -> None:
    assert in_order(formulas) == order
