"""Which spec a checkpoint belongs to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.specs import match
from dspark_convert.specs.load import Spec, load_specs
from dspark_convert.specs.match import lookup, match_spec, shared_tensors

CONFIG = {"a": {"b": 3, "c": [5, {"d": 7}], "n": None}, "list": [1]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", CONFIG["a"]),
        ("a.b", 3),
        ("a.c.0", 5),
        ("a.c.1.d", 7),
        ("a.c.2", None),
        ("a.c.x", None),
        ("a.c.-1", None),
        ("a.n", None),
        ("a.b.c", None),
        ("b", None),
        ("list.0", 1),
    ],
)
def test_lookup(path: str, value: Any) -> None:
    assert lookup(CONFIG, path) == value


def spec(name: str, **changes: Any) -> Spec:
    base = next(spec for spec in load_specs() if spec.name == "qwen3-deepspec")
    plain: dict[str, Any] = {"architectures": ("Draft",), "required_tensors": ("fc.*",), "foreign_tensors": ()}
    return replace(base, file=f"arch_specs/{name}.toml", name=name, title=f"the {name}", **(plain | changes))


SPECS = (
    spec("nested", keys=("outer.inner", "other"), foreign_keys=()),
    spec("plain", keys=(), foreign_keys=("outer", "other"), foreign_tensors=("*.sinks",)),
    spec("lone", architectures=("Lone",), foreign_tensors=("markov.*",)),
    spec("renamed", architectures=("Early",), rename=(("head.fc.", "fc."),)),
)


@pytest.fixture(autouse=True)
def specs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "load_specs", lambda: SPECS)


@pytest.mark.parametrize(
    ("config", "tensors", "name"),
    [
        ({}, ["fc.weight"], "plain"),
        ({"outer": None}, ["model.fc.weight"], "plain"),
        ({"outer": {"inner": 0}}, ["fc.weight"], "nested"),
        ({"other": False}, ["fc.weight"], "nested"),
        ({"architectures": ["Early"]}, ["head.fc.weight"], "renamed"),
        ({"architectures": ["Early"]}, ["model.head.fc.weight"], "renamed"),
        ({"architectures": ["Foreign", "Early"]}, ["fc.weight"], "renamed"),
    ],
)
def test_found(config: dict[str, Any], tensors: list[str], name: str) -> None:
    assert match_spec({"architectures": ["Draft"], **config}, tensors).name == name


@pytest.mark.parametrize(
    ("config", "tensors", "says"),
    [
        ({}, ["x.weight"], "none of fc.* is there"),
        ({}, ["fc.weight", "layers.0.sinks"], "no the plain: it holds layers.0.sinks"),
        ({"outer": {"inner": None}}, ["fc.weight"], "no the nested: config.json has no outer.inner or other"),
        ({"outer": {"inner": None}}, ["fc.weight"], "no the plain: config.json has outer"),
        (
            {"architectures": ["Early"]},
            ["a", "b", "head.fc_2.weight", "layers.0.x"],
            "but it is no the renamed: none of fc.* is among its tensors, as [rename] of arch_specs/renamed.toml",
        ),
        (
            {"architectures": ["Early"]},
            ["a", "b", "head.fc_2.weight", "layers.0.x"],
            "calls them (layers.0.x, a, b, ...).",
        ),
        (
            {"architectures": ["Foreign"]},
            ["fc.weight"],
            "this version converts Draft, Early, Lone; docs/adding-a-family.md says",
        ),
        ({"architectures": []}, ["fc.weight"], "names no architectures"),
        (
            {"architectures": ["Lone"]},
            ["fc.weight", "model.markov.b", "markov.a"],
            "says Lone, but the checkpoint holds markov.a, markov.b too, which no the lone has: correct the class",
        ),
        (
            {"architectures": ["Lone"]},
            ["fc.weight", *(f"markov.{i}" for i in range(5))],
            "holds markov.0, markov.1, markov.2 and 2 more too",
        ),
        ({"architectures": ["Lone"]}, ["markov.a"], "but the tensors are those of"),
    ],
)
def test_not_found(config: dict[str, Any], tensors: list[str], says: str) -> None:
    with pytest.raises(InputError) as told:
        match_spec({"architectures": ["Draft"], **config}, tensors)
    assert says in str(told.value)


def test_a_checkpoint_of_two_families_is_of_none() -> None:
    with pytest.raises(InputError, match=r"2 families \(the plain and the renamed\): Draft, Early"):
        match_spec({"architectures": ["Draft", "Early"]}, ["fc.weight"])


def test_two_tables_that_fit_one_checkpoint_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "load_specs", lambda: (*SPECS, spec("twin")))
    with pytest.raises(EnvironmentFault) as told:
        match_spec({"architectures": ["Draft"]}, ["fc.weight"])
    assert str(told.value) == (
        "the tables arch_specs/plain.toml and arch_specs/twin.toml both fit this checkpoint; "
        "give one of them unless_tensors or unless_keys."
    )


def test_which_tables_may_be_borrowed_depends_on_what_is_there() -> None:
    names = ["fc.weight", "model.embed_tokens.weight", "lm_head.weight", "norm.weight"]
    config = {"architectures": ["Draft"]}
    assert shared_tensors(config, names) == ["model.embed_tokens.weight", "lm_head.weight"]
    # the head of a vocabulary of its own is the draft's
    assert shared_tensors(config, [*names, "d2t"]) == ["model.embed_tokens.weight"]
