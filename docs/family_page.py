"""The sections of docs/families.md: what the families of a backbone share once, and of each family what is its own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import starmap
from typing import Any

from dspark_convert.specs.load import ComputedRule, Spec, TensorRule, load_specs, parse_spec, reading

FAMILIES_INTRO = """\
Each section is one file in `arch_specs/`. Defaults, shapes and conditions are formulas over the fields before
them and the checkpoint: `has` tells whether a tensor is there, `rows` and `cols` its size, `count` a list's length,
`numbered` how many layers the names count; `{last}` is the last layer's number. What most families share is told once,
as the backbone `qwen3`; of a family follows what is otherwise, or more.

Where `mask_embedding.pt` lies beside a checkpoint (MiMo's), it is the draft's own embedding of its mask token, whose
row the target never trained. Then the target's embeddings, with that row, and its head are written, out of its
checkpoint (`--target-model-dir`) or its GGUF (`--target-gguf`), where blocks keep their type.
"""

#: title of a table -> its columns, the first of which names a row
HEADS = {
    "What is read": ("field", "config, in order of preference", "default"),
    "Tensors": ("checkpoint", "GGUF", "shape, row-major", ""),
    "Added": ("GGUF", "values", "when", "why"),
    "Left out": ("checkpoint", "why"),
    "Refused": ("what", "why"),
    "Other than llama.cpp's own converter": ("what", "why"),
}
Rows = list[tuple[str, ...]]


def sections() -> Iterator[str]:
    backbones = {name: _backbone(name) for name in ("qwen3",)}
    for name, spec in backbones.items():
        yield from (f"## What the families of Qwen3 layers share (`{name}`)", "", _meaning(spec), "")
        for title, rows in _tables(spec).items():
            yield from table(title, HEADS[title], rows)
    for table_, spec in zip(_families(), load_specs(), strict=True):
        yield from (f"## {spec.title} (`{spec.name}`)", "", _recognised(spec), "")
        base = backbones.get(table_.get("extends", ""))
        yield from (_meaning(spec) if base is None else f"As [`{base.name}`](#{_anchor(base)}), but:", "")
        if spec.unsupported:
            yield from ("It is read and shown, but not converted:", "", *(f"* {r}" for r in spec.unsupported), "")
        if table_.get("without"):
            yield from (f"Without {_list(table_['without'])}.", "")
        shared = {} if base is None else _tables(base)
        for title, rows in _tables(spec).items():
            yield from table(title, HEADS[title], [row for row in rows if row not in shared.get(title, [])])


def _families() -> list[dict[str, Any]]:
    """As they stand in their files, in the order of ``load_specs``."""
    paths = sorted((f for f in files("arch_specs").iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return [tomllib.loads(path.read_text("utf-8")) for path in paths]


def _backbone(name: str) -> Spec:
    whole = tomllib.loads((files("arch_specs") / "backbones" / f"{name}.toml").read_text("utf-8"))
    return parse_spec({**whole, "name": name, "title": name, "recognise": {"architectures": [], "tensors": []}}, name)


def _anchor(base: Spec) -> str:
    """As GitHub makes it of the heading."""
    return f"what-the-families-of-qwen3-layers-share-{base.name}"


def _recognised(spec: Spec) -> str:
    text = f"Recognised by the class {_list(spec.architectures)} with one of {_list(spec.required_tensors)}"
    if spec.instead_keys:
        text += f" or one of the config keys {_list(spec.instead_keys)}"
    if spec.keys:
        text += f" and one of the config keys {_list(spec.keys)}"
    unless = [f"it holds {_list(spec.foreign_tensors)}"] if spec.foreign_tensors else []
    unless += [f"config.json has {_list(spec.foreign_keys)}"] if spec.foreign_keys else []
    if unless:
        text += f", unless {' or '.join(unless)}"
    if spec.rename:
        text += f". {', '.join(starmap(_renamed, spec.rename))}"
    if spec.within:
        text += f". The draft is what {_list(spec.within)} names; all else is the target's and not read"
    if spec.nested:
        text += f". Config keys may also stand inside {_list(spec.nested)}"
    return f"{text}."


def _renamed(start: str, ours: str) -> str:
    rest = "x" if start.endswith(".") else ""  # else it is a whole name
    return f"`{start}{rest}` is read as `{ours}{rest}`"


def _meaning(spec: Spec) -> str:
    text = f"Rotary pairs: {spec.rope_style}. A layer id plus {spec.tap_offset} is llama.cpp's layer input."
    if spec.scales and spec.scales.tensor_scale:
        text += (
            f" NVFP4 codes `x{spec.scales.weight}` have their scales in `x{spec.scales.scale}` and one number for all "
            f"in `x{spec.scales.tensor_scale}`."
        )
    elif spec.scales:
        text += (
            f" FP8 and FP4 codes `x{spec.scales.weight}` have their scales in `x{spec.scales.scale}`; an FP8 tile is "
            f"as large as `{spec.scales.tile}` says."
        )
    return text


def _tables(spec: Spec) -> Mapping[str, Rows]:
    below = tuple(f"{name}." for name in spec.nested)
    fields = [
        (
            f"`{f.name}`",
            _list(source for source in f.sources if not reading(source)[1].startswith(below)),
            f"`{f.formula}`" if f.formula else "none" if f.optional else "required",
        )
        for f in spec.fields
    ]
    refused = [(f"`{r.source}`", r.reason + (" (left out if all zeros)" if r.unless_zero else "")) for r in spec.refuse]
    refused += [
        (f"config `{r.key}` other than {_list(map(repr, r.allow)) or 'null'}", r.reason)
        for r in spec.require
        if not r.key.startswith(below)
    ]
    refused += [(f"`{f.name}` other than {_list(map(repr, f.choices))}", f.reason) for f in spec.fields if f.choices]
    made = [
        (f"`{z.gguf}`", f"`{z.how}`" if isinstance(z, ComputedRule) else "zeros", f"`{z.when}`", z.reason)
        for z in (*spec.zeros, *spec.computed)
    ]
    return {
        "What is read": [*fields, *((f"`{name}`", "", f"`{formula}`") for name, formula in spec.derived)],
        "Tensors": [
            (f"`{t.source}`", f"`{t.gguf}`", f"`[{', '.join(t.shape)}]`", _notes(t, spec.layer_name))
            for t in spec.tensors
        ],
        "Added": made,
        "Left out": [(f"`{rule.source}`", rule.reason) for rule in spec.drop],
        "Refused": refused,
        "Other than llama.cpp's own converter": [
            (_list(rule.source.split(", ")), rule.reason) for rule in spec.deviations
        ],
    }


def _notes(rule: TensorRule, layer_name: str) -> str:
    notes = []
    if rule.shared != "False":
        condition = "" if rule.shared == "True" else f" if `{rule.shared}`"
        notes.append(f"the target's{condition}; written with `--shared-tensors include`")
    elif rule.optional:
        notes.append("optional")
    if rule.only:
        notes.append(f"the {rule.only} {layer_name} only")
    if rule.stack:
        notes.append(f"`{rule.stack}` of them, stacked")
    if rule.pairs:
        notes.append("heads put in order unless `rope_neox`")
    if rule.offsets:
        notes.append("offsets become ids, I64 always")
    elif rule.role != "matrix":
        notes.append(f"type as of a {rule.role}" if rule.role != "fixed" else "F32 always")
    if rule.when != "True":
        notes.append(f"if `{rule.when}`")
    return "; ".join(notes)


def _list(items: Iterable[str]) -> str:
    return ", ".join(f"`{item}`" for item in items)


def table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table under its title; none without rows."""
    if not rows:
        return []
    lines = [f"### {title}", "", f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]
