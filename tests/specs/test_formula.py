"""The formula language of specs: what it computes, and that nothing else can be reached through it."""

from __future__ import annotations

from typing import Any

import pytest

from dspark_convert.specs.formula import FormulaError, NoValueError, evaluate, names_of

NAMES = {"hidden": 128, "rank": 0, "kind": "vanilla", "flag": True, "taps": [1, 2, 3], "theta": 1e4}
SHAPES = {"w.weight": (512, 16), "scalar": ()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("hidden", 128),
        ("2 * hidden + 1", 257),
        ("hidden // 3 - hidden % 3", 40),
        ("(hidden + 1) * 2", 258),
        ("count(taps) * hidden", 384),
        ("has('w.weight')", True),
        ("has('v.weight')", False),
        ("rows('w.weight')", 512),
        ("cols('w.weight')", 16),
        ("cols('v.weight')", 0),
        ("rows('scalar') + cols('scalar')", 0),
        ("'vanilla'", "vanilla"),
        ("kind == 'vanilla' and not rank", True),
        ("kind != 'vanilla' or rank > 0", False),
        ("hidden >= 128 and hidden <= 128 and not hidden < 128", True),
        ("rank if rank > 0 else (32 if flag else 0)", 32),
        ("True", True),
        ("theta > 1", True),
        ("whole(0.25 * hidden)", 32),
        ("root(2 * hidden)", 16.0),
        # the second half has no value, and is not needed
        ("rank == 0 or nothing", True),
        ("rank > 0 and nothing", False),
        ("1 if flag else nothing", 1),
    ],
)
def test_values(text: str, value: Any) -> None:
    result = evaluate(text, NAMES, SHAPES)
    assert result == value
    assert type(result) is type(value)


#: the language has them, but not for these values
UNFIT_VALUES = {
    "taps + taps",
    "'a' * 9999999999",
    "9999999999 * 'a'",
    "kind + kind",
    "kind % hidden",
    "kind % taps",
    "'%99999999999d' % hidden",
    "taps * 9999999999",
    "hidden // rank",
    "hidden % rank",
    "kind < hidden",
    "count(hidden)",
}


@pytest.mark.parametrize(
    "text",
    [
        "hidden.real",
        "().__class__.__base__.__subclasses__()",
        "''.join('ab')",
        "'{0.__class__}'.format(hidden)",
        "f'{hidden}'",
        "kind[0]",
        "taps[0]",
        "[1, 2]",
        "(1, 2)",
        "{1}",
        "{'a': 1}",
        "lambda: 1",
        "(lambda x: x)(1)",
        "[x for x in taps]",
        "count([x for x in taps])",
        "sum(x for x in taps)",
        "(x := 1)",
        "__import__('os').system('true')",
        "eval('1')",
        "open('/etc/passwd')",
        "print(1)",
        "len(taps)",
        "has(kind)",
        "has('a', 'b')",
        "has(name='a')",
        "has(*taps)",
        "has('a' + 'b')",
        "rows(1)",
        "count('abc')",
        "count(taps, taps)",
        "count.__self__",
        "has",
        "True.__class__",
        "9 ** 9 ** 9",
        "2 ** 3",
        "1 << 100000",
        "hidden / 3",
        "hidden @ hidden",
        "hidden | 1",
        "-1",
        "+1",
        "~1",
        "1j",
        "b'a'",
        "None",
        "...",
        "1 < 2 < 3",
        "kind in taps",
        "kind is kind",
        "await x",
        "yield",
        "*taps",
        "x = 1",
        "import os",
        "1; 2",
        "",
        " ",
        "1 +",
        "((",
        "\0",
        "hidden\0",
        "'unclosed",
        "nothing",
        "hidden + nothing",
        "not nothing",
        *sorted(UNFIT_VALUES),
        "count(nothing)",
        "(" * 300 + "1" + ")" * 300,
        "not " * 100_000 + "1",
        "1" + " + 1" * 100_000,
        "9" * 5000,
    ],
    ids=lambda text: repr(text)[:40],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        evaluate(text, NAMES, SHAPES)
    if text not in UNFIT_VALUES:  # it is refused before there are values, too
        try:
            assert names_of(text) - NAMES.keys()
        except FormulaError:
            return


def test_an_error_says_what_is_wrong() -> None:
    with pytest.raises(FormulaError, match="nothing is not known"):
        evaluate("hidden + nothing", NAMES, SHAPES)
    with pytest.raises(FormulaError, match=r"'hidden\.real' is not part of the formula language"):
        evaluate("1 + hidden.real", NAMES, SHAPES)
    with pytest.raises(FormulaError, match=r"'hidden // rank'.*zero"):
        evaluate("hidden // rank", NAMES, SHAPES)


def test_a_name_without_a_value_is_told_from_a_formula_that_is_none() -> None:
    for text in ("nothing", "count(nothing)", "has('x.{last}')"):
        with pytest.raises(NoValueError):
            evaluate(text, NAMES, SHAPES)
    for text in ("hidden // rank", "hidden.real", "1 +"):
        with pytest.raises(FormulaError) as told:
            evaluate(text, NAMES, SHAPES)
        assert not isinstance(told.value, NoValueError)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1 if flag else nothing", {"flag", "nothing"}),
        ("rank == 0 or nothing and not kind", {"rank", "nothing", "kind"}),
        ("count(taps) * whole(root(theta)) - hidden % 3", {"taps", "theta", "hidden"}),
        ("has('mtp.{last}.x') or rows('w') > cols('w') + numbered('mtp.{layer}.')", {"n_layer"}),
        ("'vanilla'", set()),
    ],
)
def test_the_names_that_a_formula_has_to_know(text: str, names: set[str]) -> None:
    assert names_of(text) == names


def test_names_are_not_changed() -> None:
    before = dict(NAMES), dict(SHAPES)
    evaluate("count(taps) + cols('missing')", NAMES, SHAPES)
    assert (dict(NAMES), dict(SHAPES)) == before


STAGES = {
    "mtp.0.x": (1,),
    "mtp.2.y": (7, 5),
    "mtp.10": (1,),
    "model.mtp.30.x": (1,),
    "mtp.x.40": (1,),
    "mtp.²5.x": (1,),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("numbered('mtp.{layer}.')", 3),
        ("numbered('other.{layer}.')", 0),
        ("has('mtp.{last}.y')", True),
        ("has('mtp.{last}.x')", False),
        ("rows('mtp.{last}.y')", 7),
        ("cols('mtp.{last}.y')", 5),
        ("cols('mtp.{last}.z')", 0),
    ],
)
def test_layers_of_the_tensors(text: str, value: Any) -> None:
    assert evaluate(text, {"n_layer": 3}, STAGES) == value


def test_a_number_that_no_layer_has_is_not_read() -> None:
    assert evaluate("numbered('mtp.{layer}.')", {}, {f"mtp.{'9' * 10_000}.x": (1,), "mtp.1.x": (1,)}) == 2


@pytest.mark.parametrize("text", ["has('a.{last}')", "numbered(n_layer)", "numbered('a', 'b')"])
def test_layers_that_are_not_known(text: str) -> None:
    with pytest.raises(FormulaError):
        evaluate(text, {}, STAGES)
