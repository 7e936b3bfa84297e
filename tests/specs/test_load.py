"""Every arch spec of the package: its TOML says only what the format knows, and its formulas can be computed."""

from __future__ import annotations

import ast
import copy
import inspect
import re
import tomllib
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

import pytest

import arch_specs
from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.specs.checking import check_shape, check_whole
from dspark_convert.specs.formula import evaluate
from dspark_convert.specs.load import Spec, flat_name, load_specs, reading, whole_table
from dspark_convert.specs.match import choose_tensors, holds_target, match_spec, needed_tensors

BASES = {
    f.name.removesuffix(".toml"): tomllib.loads(f.read_text("utf-8"))
    for f in (files("arch_specs") / "backbones").iterdir()
}
TABLES = {
    f.name: whole_table(tomllib.loads(f.read_text("utf-8")), BASES, f.name)
    for f in files("arch_specs").iterdir()
    if f.name.endswith(".toml")
}

#: table -> keys that must be there, keys that may
KEYS: dict[str, tuple[set[str], set[str]]] = {
    "": (
        {"name", "title", "backbone", "rope_style", "tap_offset", "recognise", "fields", "derived", "config", "tensor"},
        {
            "layer_name",
            "rename",
            "unsupported",
            "scales",
            "require",
            "zeros",
            "computed",
            "drop",
            "refuse",
            "deviation",
        },
    ),
    "recognise": ({"architectures", "tensors"}, {"unless_tensors", "or_keys", "keys", "unless_keys", "within"}),
    "fields": ({"from", "type"}, {"min", "max", "choices", "formula", "optional", "check", "reason"}),
    "require": ({"key", "allow", "reason"}, set()),
    "config": ({"inert"}, {"nested"}),
    "scales": ({"weight", "scale"}, {"tile", "tensor_scale"}),
    "tensor": (
        {"source", "gguf", "shape"},
        {"when", "gguf_columns", "shared", "optional", "only", "stack", "role", "pairs", "offsets"},
    ),
    "zeros": ({"gguf", "shape", "when", "reason"}, set()),
    "computed": ({"gguf", "shape", "when", "how", "reason"}, set()),
    "drop": ({"source", "reason"}, set()),
    "refuse": ({"source", "reason"}, {"unless_zero"}),
    "deviation": ({"source", "reason"}, set()),
}

#: values that are possible for fields of each type, for trying formulas
SAMPLES: dict[str, Any] = {
    "int": 64,
    "float": 1.0,
    "bool": True,
    "str": "vanilla",
    "int_list": [0, 1],
    "str_list": ["x"],
}

each_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
each_spec = pytest.mark.parametrize("spec", load_specs(), ids=lambda spec: spec.name)


def entries(table: dict[str, Any], part: str) -> list[dict[str, Any]]:
    found = table if not part else table.get(part, [])
    if part == "fields":
        return list(found.values())
    return found if isinstance(found, list) else [found]


def formulas(spec: Spec) -> list[tuple[str, set[str]]]:
    """Every formula with the names that have a value when it is computed."""
    result: list[tuple[str, set[str]]] = []
    known: set[str] = set()
    for field in spec.fields:
        if field.formula is not None:
            result.append((field.formula, set(known)))
        known.add(field.name)
    for name, formula in spec.derived:
        result.append((formula, set(known)))
        known.add(name)
    later = [field.check for field in spec.fields if field.check is not None]
    for rule in spec.tensors:
        later += [rule.when, *rule.shape, *(text for text in (rule.gguf_columns, rule.stack) if text)]
    for zeros in spec.zeros:
        later += [zeros.when, *zeros.shape]
    return result + [(formula, known) for formula in later]


def test_there_is_a_spec_for_every_file() -> None:
    assert [spec.name for spec in load_specs()] == [table["name"] for _, table in sorted(TABLES.items())]
    assert len({spec.name for spec in load_specs()}) == len(TABLES) > 0


@each_table
def test_keys_are_those_of_the_format(table: dict[str, Any]) -> None:
    for part, (required, optional) in KEYS.items():
        for entry in entries(table, part):
            assert required <= entry.keys() <= required | optional, (part, entry)


def test_the_format_is_documented_with_every_key() -> None:
    text = arch_specs.__doc__ or ""
    known = {"extends", "without"}.union(*(required | optional for required, optional in KEYS.values()))
    assert known | KEYS.keys() - {""} <= set(re.findall(r"\w+", text))
    named = set(re.findall(r"``(\w+)``", text))
    assert named <= known | {field.name for spec in load_specs() for field in spec.fields}
    assert {"extends", "without"} <= named


def check(table: dict[str, Any]) -> None:
    check_shape("x.toml", table)
    check_whole("x.toml", table, {}, BASES)


@each_table
@pytest.mark.parametrize("part", list(KEYS))
def test_a_key_that_the_format_does_not_know_is_told(part: str, table: dict[str, Any]) -> None:
    broken = copy.deepcopy(table)
    for entry in entries(broken, part):
        entry["shpae"] = "x"
    if entries(broken, part):
        with pytest.raises(EnvironmentFault, match=r"x\.toml: .*the format has no key 'shpae'"):
            check(broken)


@each_table
@pytest.mark.parametrize("part", list(KEYS))
def test_a_key_that_is_missing_is_told(part: str, table: dict[str, Any]) -> None:
    for key in KEYS[part][0]:
        broken = copy.deepcopy(table)
        if not entries(broken, part):
            continue
        del entries(broken, part)[0][key]
        with pytest.raises(EnvironmentFault, match=rf"x\.toml: .*\b{key}\b.* must be there"):
            check(broken)


@each_spec
def test_formulas_use_names_that_have_a_value(spec: Spec) -> None:
    fields = {field.name: SAMPLES[field.type] for field in spec.fields}
    for formula, known in formulas(spec):
        functions = {"has", "rows", "cols", "count", "numbered", "whole", "root"}
        names = {node.id for node in ast.walk(ast.parse(formula, mode="eval")) if isinstance(node, ast.Name)}
        assert names <= known | functions, formula
        evaluate(formula, {name: fields.get(name, 64) for name in known}, {})


@each_spec
def test_formulas_name_tensors_of_the_spec(spec: Spec) -> None:
    sources = [rule.source.replace("{layer}", "0") for rule in spec.tensors]
    patterns = sources + [rule.source for rule in (*spec.refuse, *spec.drop)]
    for formula, _ in formulas(spec):
        for name in re.findall(r"(?:has|rows|cols)\('([^']*)'\)", formula):
            assert any(fnmatchcase(name.replace("{last}", "0"), pattern) for pattern in patterns), name


@each_spec
def test_names_are_unique(spec: Spec) -> None:
    for names in (
        [rule.source for rule in spec.tensors],
        [rule.gguf for rule in spec.tensors],
        [field.name for field in spec.fields] + [name for name, _ in spec.derived],
        [rule.key for rule in spec.require],
        [rule.source for rule in (*spec.drop, *spec.refuse)],
        list(spec.inert),
        [source for field in spec.fields for source in field.sources],
    ):
        assert len(names) == len(set(names))


@each_spec
def test_no_tensor_is_both_taken_and_left(spec: Spec) -> None:
    for rule in spec.tensors:
        name = rule.source.replace("{layer}", "3")
        for other in (*spec.drop, *spec.refuse):
            assert not fnmatchcase(name, other.source), (name, other.source)
        assert not any(fnmatchcase(name, pattern) for pattern in spec.foreign_tensors)


@each_spec
def test_layers_stand_in_both_names_or_in_neither(spec: Spec) -> None:
    for rule in spec.tensors:
        # What one layer alone has stands outside of the layers in llama.cpp.
        assert rule.source.count("{layer}") == rule.gguf.count("{layer}") + (rule.only is not None) <= 1
        assert rule.source.count("{expert}") == (rule.stack is not None)
        assert rule.only is None or rule.per_layer
        assert len(rule.gguf.replace("{layer}", "999").encode()) < 64


@each_spec
def test_a_config_key_has_one_meaning(spec: Spec) -> None:
    read = {reading(source)[1] for field in spec.fields for source in field.sources}
    read |= {rule.key for rule in spec.require}
    assert not [key for key in read if any(fnmatchcase(key, pattern) for pattern in spec.inert)]


@each_spec
def test_what_makes_a_refusal_has_a_reason(spec: Spec) -> None:
    for field in spec.fields:
        assert field.type in SAMPLES
        assert bool(field.reason) == bool(field.check or field.choices), field.name
    rules = (*spec.drop, *spec.refuse, *spec.require, *spec.zeros)
    for reason in [str(vars(rule)["reason"]) for rule in rules]:
        assert reason
        assert not reason.endswith(".")


@each_spec
def test_recognition_names_tensors_that_the_spec_takes(spec: Spec) -> None:
    assert spec.rope_style in ("neox", "norm")
    assert spec.tap_offset in (0, 1)
    sources = {rule.source for rule in spec.tensors}
    if spec.scales and spec.scales.tensor_scale:
        sources |= {name.replace(spec.scales.weight, spec.scales.tensor_scale) for name in sources}
    assert {pattern.replace("*", "{layer}") for pattern in spec.required_tensors} <= sources
    assert all(spec.speaks_of(source) for source in sources)
    assert spec.architectures


@each_spec
def test_a_checkpoint_of_exactly_the_specs_tensors_is_recognised(spec: Spec) -> None:
    names = {rule.source.replace("{layer}", "0"): () for rule in spec.tensors}
    keys: dict[str, Any] = {key: {} for key in spec.keys[:1]}
    for architecture in spec.architectures:
        assert match_spec({"architectures": [architecture], **keys}, names) is spec
        assert match_spec({"architectures": ["Other", architecture], **keys}, {f"model.{n}": () for n in names}) is spec
    with pytest.raises(InputError, match="this version converts"):
        match_spec({"architectures": ["Other"]}, names)


def test_needed_are_all_but_the_dropped() -> None:
    config = {"architectures": ["Qwen3DSparkModel"]}
    names = ["model.fc.weight", "layers.0.rotary_emb.inv_freq", "norm.weight", "what.is.this"]
    assert needed_tensors(config, names) == ["model.fc.weight", "norm.weight", "what.is.this"]


def test_needed_of_a_target_with_a_draft_in_it_are_the_drafts() -> None:
    config = {"architectures": ["DeepseekV4ForCausalLM"]}
    names = ["embed.weight", "mtp.0.main_proj.weight", "layers.0.ffn.gate.bias_vl", "mtp.0.ffn.gate.bias_vl", "mtp.9.x"]
    assert needed_tensors(config, names) == ["mtp.0.main_proj.weight", "mtp.9.x"]
    with pytest.raises(InputError, match="no DSpark draft"):
        needed_tensors(config, ["embed.weight", "layers.0.ffn_norm.weight", "mtp.0.enorm.weight"])


def test_what_is_chosen_of_a_checkpoint() -> None:
    inside = {"architectures": ["Other", "DeepseekV4ForCausalLM"]}
    names = ["embed.weight", "mtp.0.main_proj.weight"]
    assert choose_tensors(inside, names) == (["mtp.0.main_proj.weight"], True)
    assert choose_tensors({"architectures": ["Qwen3DSparkModel"]}, ["fc.weight"]) == (["fc.weight"], False)
    assert choose_tensors(inside, ["embed.weight"]) == ([], False)
    assert holds_target(inside)
    assert not holds_target({"architectures": ["Qwen3DSparkModel"]})
    assert not holds_target({})


def test_keys_of_a_nested_config_count_like_those_at_the_top() -> None:
    spec = next(spec for spec in load_specs() if spec.name == "deepseek-v4")
    field = next(field for field in spec.fields if field.name == "block_size")
    assert field.sources == ("dspark_block_size", "text_config.dspark_block_size")
    assert {"hidden_act", "text_config.hidden_act"} <= {rule.key for rule in spec.require}
    assert {"compress_ratios", "text_config.compress_ratios"} <= set(spec.inert)


def test_flat_name_takes_one_prefix_off() -> None:
    assert flat_name("model.model.norm.weight") == "model.norm.weight"
    assert flat_name("norm.model.weight") == "norm.model.weight"
    assert "model." in (inspect.getdoc(flat_name) or "")
