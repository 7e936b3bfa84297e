"""Slips in one family's file, each told in one sentence, before any command reads a checkpoint."""

from __future__ import annotations

import dataclasses
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import get_args

import pytest

from dspark_convert.errors import EnvironmentFault
from dspark_convert.specs.checking import FORMAT
from dspark_convert.specs.load import (
    ComputedRule,
    Field,
    NameRule,
    Require,
    Role,
    Scales,
    TensorRule,
    ZerosRule,
    load_folder,
)
from dspark_convert.specs.normalise import TYPES

FAMILY = """\
name = "zephyr"
title = "DSpark draft of Zephyr"
extends = "qwen3"

[recognise]
architectures = ["ZephyrSparkModel"]
tensors = ["markov_head.markov_w1.weight"]

[rename]
"spark.w1" = "markov_head.markov_w1.weight"

[fields]
block_size = { from = ["num_spec_slots"] }
sample_from_anchor = { formula = "False" }
use_swa = { formula = "True" }

[derived]
twice = "2 * hidden_size"

[config]
nested = ["backbone"]

[[drop]]
source = "ema_decay"
reason = "the trainer's own running average's decay"

[[tensor]]
source = "layers.{layer}.self_attn.g_proj.weight"
gguf = "blk.{layer}.attn_gate.weight"
shape = ["n_head * head_dim", "hidden_size"]
"""
FILE = "arch_specs/zephyr.toml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with as_file(files("arch_specs") / "backbones" / "qwen3.toml") as backbone:
        (tmp_path / "backbones").mkdir()
        shutil.copy(backbone, tmp_path / "backbones")
    (tmp_path / "zephyr.toml").write_text(FAMILY)
    return tmp_path


def told(folder: Path) -> str:
    with pytest.raises(EnvironmentFault) as fault:
        load_folder(folder)
    assert str(fault.value).endswith(".")
    return str(fault.value)


def test_a_file_without_a_slip(folder: Path) -> None:
    (spec,) = load_folder(folder)
    assert (spec.name, spec.file) == ("zephyr", FILE)
    assert dict(spec.derived)["twice"] == "2 * hidden_size"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("title =", "titel =", ": the format has no key 'titel' (did you mean title?); it has name, title, backbone,"),
        ("[recognise]", "[recognize]", ": the format has no key 'recognize' (did you mean recognise?); it has "),
        ("architectures =", "architecture =", ": [recognise]: the format has no key 'architecture' (did you mean arch"),
        (
            '{ formula = "True" }',
            '{ formual = "True" }',
            ": [fields] use_swa: the format has no key 'formual' (did you mean formula?); it has from, type, min, max,",
        ),
        (
            "use_swa =",
            "use_swaa =",
            ": the backbone qwen3 has no such field, and a new one needs from and type (did you mean use_swa?).",
        ),
        (
            '{ formula = "True" }',
            '{ type = "integer" }',
            ": [fields] use_swa: type: it is 'integer', expected 'int' or",
        ),
        ('{ formula = "True" }', '"True"', ": [fields] use_swa: it is 'True', expected a table of keys."),
        ("reason =", "raison =", ": [[drop]] ema_decay: the format has no key 'raison' (did you mean reason?); it has"),
        ("\nreason = \"the trainer's own running average's decay\"", "", ": [[drop]] ema_decay: reason must be there."),
        ('source = "ema_decay"\n', "", ": [[drop]] number 1: source must be there."),
        (
            "[[drop]]",
            "deviation = [3]\n[[drop]]",
            ": [config]: the format has no key 'deviation'; it has inert, nested.",
        ),
        ("[recognise]", "refuse = ['x']\n[recognise]", ": [[refuse]] number 1: it is 'x', expected a table of keys."),
        ("[[drop]]", "[drop]", ", expected a list of tables, each under its name in [[ ]]."),
        (
            'extends = "qwen3"\n',
            "",
            ": backbone, rope_style, tap_offset must be there, or extends, which brings what a backbone has (there",
        ),
        ('"qwen3"', '"qwen4"', ": extends: there is no arch_specs/backbones/qwen4.toml (there is qwen3)."),
        (
            'extends = "qwen3"',
            'extends = "qwen3"\nwithout = ["use_sw"]',
            ": without: the backbone has no use_sw to go ",
        ),
        ('"True" }', '"True"', ":15:29: Unclosed inline table."),
        # strings where lists belong, and values that are none of those there are
        (
            '["num_spec_slots"]',
            '"num_spec_slots"',
            ": [fields] block_size: from: it is 'num_spec_slots', expected a list",
        ),
        (
            '["num_spec_slots"]',
            '["nto slots"]',
            ": [fields] block_size: from: 'nto' is no way to read a key (there are not",
        ),
        ('["ZephyrSparkModel"]', '"X"', ": [recognise]: architectures: it is 'X', expected a list of strings."),
        ('["backbone"]', '"backbone"', ": [config]: nested: it is 'backbone', expected a list of strings."),
        (
            '["n_head * head_dim", "hidden_size"]',
            '"n_head"',
            ": [[tensor]] layers.{layer}.self_attn.g_proj.weight: shape: ",
        ),
        ("[[tensor]]", '[[tensor]]\nrole = "heads"', ".weight: role: it is 'heads', expected 'matrix' or 'expert' or"),
        ("[[tensor]]", '[[tensor]]\noptional = "yes"', ".weight: optional: it is 'yes', expected true or false."),
        ("[[tensor]]", '[[tensor]]\nonly = "middle"', ".weight: only: it is 'middle', expected 'first' or 'last'."),
        ('extends = "qwen3"', 'extends = "qwen3"\ntap_offset = true', ": tap_offset: it is True, expected 0 or 1."),
        (
            'extends = "qwen3"',
            'extends = "qwen3"\nrope_style = "nexo"',
            ": rope_style: it is 'nexo', expected 'neox' or",
        ),
        (
            'use_swa = { formula = "True" }',
            'hidden_size = { check = "True" }',
            ": [fields] hidden_size: what it refuses need",
        ),
    ],
)
def test_slips_of_keys_and_values(old: str, new: str, says: str, folder: Path) -> None:
    assert FAMILY.count(old)
    (folder / "zephyr.toml").write_text(FAMILY.replace(old, new, 1))
    assert told(folder).startswith(FILE)
    assert says in told(folder)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            '"False"',
            '"Flase"',
            ": [fields] sample_from_anchor: the formula 'Flase' cannot be computed: Flase is no field, no derived",
        ),
        (
            '"False"',
            '"Flase"',
            " and no function (has, rows, cols, numbered, count, whole, root) (did you mean False?).",
        ),
        (
            '"False"',
            '"Fal se"',
            ": [fields] sample_from_anchor: the formula 'Fal se' cannot be computed: invalid syntax",
        ),
        (
            '"False"',
            "\"hass('d2t')\"",
            ": [fields] sample_from_anchor: \"hass('d2t')\" is not part of the formula language",
        ),
        ('"False"', '"has(d2t)"', ": [fields] sample_from_anchor: 'has(d2t)' is not part of the formula language."),
        (
            '"False"',
            '"twice > 0"',
            ": [fields] sample_from_anchor: the formula 'twice > 0' cannot be computed: twice has no ",
        ),
        (
            '"2 * hidden_size"',
            '"2 * hiden_size"',
            ": [derived] twice: the formula '2 * hiden_size' cannot be computed: hiden",
        ),
        (
            '"2 * hidden_size"',
            '"2 / hidden_size"',
            ": [derived] twice: '2 / hidden_size' is not part of the formula lang",
        ),
        (
            '"2 * hidden_size"',
            '"twice"',
            ": [derived] twice: the formula 'twice' cannot be computed: twice has no value yet",
        ),
        (
            '{ formula = "True" }',
            '{ check = "Treu" }',
            ": [fields] use_swa: check: the formula 'Treu' cannot be computed: ",
        ),
        (
            '"n_head * head_dim"',
            '"n_haed * head_dim"',
            "_proj.weight: shape: the formula 'n_haed * head_dim' cannot be comp",
        ),
        (
            "[[tensor]]",
            '[[tensor]]\nwhen = "has_sink"',
            "g_proj.weight: when: the formula 'has_sink' cannot be computed: ",
        ),
        (
            "[[tensor]]",
            '[[tensor]]\nstack = "n_experts"',
            ".weight: stack: the formula 'n_experts' cannot be computed: ",
        ),
        (
            "[[tensor]]",
            '[[tensor]]\nshared = "use_swa"',
            "shared: the formula 'use_swa' cannot be computed: use_swa is no ten",
        ),
        (
            "[[tensor]]",
            '[[tensor]]\ngguf_columns = "x"',
            ".weight: gguf_columns: the formula 'x' cannot be computed: x is no",
        ),
        (
            'extends = "qwen3"',
            'extends = "qwen3"\nwithout = ["head_dim"]',
            ": the formula 'head_dim' cannot be computed: ",
        ),
    ],
)
def test_slips_in_formulas(old: str, new: str, says: str, folder: Path) -> None:
    assert FAMILY.count(old)
    (folder / "zephyr.toml").write_text(FAMILY.replace(old, new, 1))
    assert told(folder).startswith(FILE)
    assert says in told(folder)


def test_a_formula_of_the_backbone_is_the_backbones_slip(folder: Path) -> None:
    path = folder / "backbones" / "qwen3.toml"
    path.write_text(path.read_text("utf-8").replace('n_taps = "count(target_layer_ids)"', 'n_taps = "count(layers)"'))
    assert told(folder).startswith(
        "arch_specs/backbones/qwen3.toml: [derived] n_taps: the formula 'count(layers)' cannot"
    )


def test_two_files_of_one_name(folder: Path) -> None:
    (folder / "boreas.toml").write_text(FAMILY)
    assert told(folder) == f"{FILE}: name: arch_specs/boreas.toml has the name 'zephyr' too."


def test_a_file_that_is_no_text(folder: Path) -> None:
    (folder / "zephyr.toml").write_bytes(FAMILY.encode("utf-16"))
    assert told(folder) == f"{FILE}: it is no text in UTF-8."


@pytest.mark.parametrize(
    ("part", "rule"),
    [
        ("tensor", TensorRule),
        ("zeros", ZerosRule),
        ("computed", ComputedRule),
        ("require", Require),
        ("refuse", NameRule),
        ("scales", Scales),
        ("fields", Field),
    ],
)
def test_the_format_has_the_keys_that_are_read(part: str, rule: type) -> None:
    needed, others = FORMAT[part]
    names = {field.name for field in dataclasses.fields(rule)}
    if rule is Field:  # of the key in its table, and of "from"
        names = names - {"name", "sources"} | {"from"}
    assert needed.keys() | others.keys() == names


def test_the_format_has_the_roles_and_types_that_there_are() -> None:
    assert FORMAT["tensor"][1]["role"] == get_args(Role)
    assert set(FORMAT["fields"][0]["type"]) == set(TYPES)
