"""Config and tensor shapes -> values of a spec's fields -> Draft."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from dspark_convert.draft import DeepSeek4, DFlash2, Draft
from dspark_convert.findings import Finding, error, warning
from dspark_convert.specs import attention, rotation
from dspark_convert.specs.checking import fault
from dspark_convert.specs.formula import NoValueError, evaluate
from dspark_convert.specs.load import Field, Spec, reading
from dspark_convert.specs.match import lookup
from dspark_convert.words import shown


def _finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


#: type of a field -> what it is called, and whether a value is of it
TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("an integer", lambda v: type(v) is int),
    "float": ("a finite number", _finite),
    "bool": ("true or false", lambda v: type(v) is bool),
    "str": ("a string", lambda v: type(v) is str),
    "str_list": ("a list of strings", lambda v: type(v) is list and bool(v) and all(type(i) is str for i in v)),
    "int_list": ("a list of integers", lambda v: type(v) is list and bool(v) and all(type(i) is int for i in v)),
}


@dataclass(frozen=True)
class Values:
    """``known`` maps fields and derived names to values, ``origin`` fields to where they stood.

    A field that is missing or bad is not in ``known``: then ``findings`` has the error.
    """

    known: dict[str, Any]
    origin: dict[str, str]
    findings: tuple[Finding, ...]


#: a value and where it stood; None: there is an error about it already
Found = tuple[Any, str] | None
ABSENT: Found = (None, "")


def resolve(
    spec: Spec, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], overrides: Mapping[str, Any]
) -> Values:
    """Resolve every field of ``spec``; ``shapes`` are row-major, by flat tensor name."""
    known: dict[str, Any] = {}
    origin: dict[str, str] = {}
    findings: list[Finding] = []
    told: set[str] = set()
    for field in spec.fields:
        if field.name in overrides:
            found: Found = overrides[field.name], f"--{field.name.replace('_', '-')}"
        else:
            found = _read(field, config, findings)
            if found == ABSENT:
                found = _default(field, known, shapes, findings)
        if found is None:
            told.add(field.name)
        if found is None or found == ABSENT:
            continue
        value, where = found
        problem = _problem(field, value)
        if expected := problem or _refused(field, value):
            message = f"{where} is {shown(value)}, expected {expected}."
            findings.append(error("config-value", where, message, "correct it" if problem else ""))
        if problem:
            told.add(field.name)
            continue
        # A choice that the runtime does not offer may be the truth about the draft, which can be shown then.
        known[field.name], origin[field.name] = value, where
    for name, formula in spec.derived:
        _try(known, name, formula, shapes)
    for field in spec.fields:
        if field.check is None or field.name not in known:
            continue
        try:
            good = evaluate(field.check, known, shapes)
        except NoValueError:
            continue  # a field that it needs has an error of its own
        if not good:
            sizes = ", ".join(f"{n} = {known[n]}" for n in known if n in field.check.replace("'", " ").split())
            message = f"{origin[field.name]} does not fit: {field.check} must hold ({sizes}); {field.reason}."
            findings.append(error("config-value", origin[field.name], message, "correct it"))
    # what is bad is not missing too
    findings += [f for f in attention.judge(known) + rotation.judge(known, origin) if f.where not in told]
    findings += _requirements(spec, config) + _unread(spec, config)
    return Values(known, origin, tuple(findings))


def _try(known: dict[str, Any], name: str, formula: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    try:
        known[name] = evaluate(formula, known, shapes)
    except NoValueError:
        return


def _read(field: Field, config: Mapping[str, Any], findings: list[Finding]) -> Found:
    found: list[tuple[Any, str]] = []
    for source in field.sources:
        word, path = reading(source)
        value = lookup(config, path)
        if value is None:
            continue
        where = f"config.json: {path}"
        if word == "not" and type(value) is bool:
            value, where = not value, f"{where} (inverted)"
        elif word == "inputs" and TYPES["int_list"][1](value):
            value, where = [item - 1 for item in value], f"{where} (layer inputs, so less 1)"
        found.append((value, where))
    if not found:
        return ABSENT
    for value, where in found[1:]:
        if value != found[0][0]:
            message = f"{found[0][1]} says {shown(found[0][0])}, but {where} says {shown(value)}."
            findings.append(error("config-disagrees", field.name, message, "correct the one that is wrong"))
            return None
    return found[0]


def _default(
    field: Field, known: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], findings: list[Finding]
) -> Found:
    if field.formula is not None:
        try:
            kind = "default" if field.sources else "the tensors"
            return evaluate(field.formula, known, shapes), f"{kind} ({field.formula})"
        except NoValueError:
            return ABSENT  # a field that it needs has an error of its own
    if field.optional:
        return ABSENT
    places = " or ".join(reading(source)[1] for source in field.sources)
    message = f"config.json has no {places}, which says the draft's {field.name}."
    findings.append(error("config-missing", field.name, message, "take the config that was published with the draft"))
    return None


def _problem(field: Field, value: Any) -> str | None:
    what, fits = TYPES[field.type]
    if not fits(value):
        return what
    low, high = field.min, field.max
    for number in value if field.type == "int_list" else [value] if field.type in ("int", "float") else []:
        if (low is not None and number < low) or (high is not None and number > high):
            return f"{what} from {low} to {high}" if high is not None else f"{what} of at least {low}"
    return None


def _refused(field: Field, value: Any) -> str | None:
    if field.choices and any(item not in field.choices for item in (value if type(value) is list else [value])):
        return f"{' or '.join(map(repr, field.choices))}: {field.reason}"
    return None


def _requirements(spec: Spec, config: Mapping[str, Any]) -> list[Finding]:
    findings = []
    for rule in spec.require:
        value = lookup(config, rule.key)
        items = value if isinstance(value, list) else [] if value is None else [value]
        if odd := [item for item in items if not any(item == a and type(item) is type(a) for a in rule.allow)]:
            message = f"config.json: {rule.key} has {shown(odd[0])}, which cannot be converted: {rule.reason}."
            findings.append(error("config-unsupported", rule.key, message))
    return findings


def _unread(spec: Spec, config: Mapping[str, Any]) -> list[Finding]:
    read = {reading(source)[1] for field in spec.fields for source in field.sources}
    read |= {rule.key for rule in spec.require}
    containers = {path[:i] for path in read for i, sign in enumerate(path) if sign == "."}
    lists = {path[:i] for path in read for i, sign in enumerate(path) if sign == "." and path[i + 1].isdecimal()}

    def paths(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for key, value in values.items():
            path = f"{prefix}{key}"
            if path in containers and isinstance(value, Mapping):
                yield from paths(f"{path}.", value)
            else:
                yield path, value

    findings = []
    for path, value in paths("", config):
        if path in read or value is None or any(fnmatchcase(path, p) for p in spec.inert):
            continue
        if path in containers - lists:
            message = f"config.json: {path} is {shown(value)}, expected an object of keys."
            findings.append(error("config-value", f"config.json: {path}", message, "correct it"))
            continue
        message = f"config.json: {path} = {shown(value)} is not known to the {spec.title} spec and was not read."
        findings.append(warning("config-unread", path, message, "check that it changes nothing in the draft"))
    return findings


def make_draft(spec: Spec, values: Values) -> Draft | None:
    """The Draft, or None while any field that it needs is missing, of which there is an error.

    Raises EnvironmentFault if there is none: then it is the family's table that leaves it out.
    """
    v = values.known
    try:
        rank = v["head_rank"]
        selector = DFlash2(**{field.name: v[field.name] for field in fields(DFlash2)}) if "selector_rank" in v else None
        return Draft(
            kind="dflash2" if selector else "dspark" if rank else "dflash",
            backbone=spec.backbone,
            block_size=v["block_size"],
            sample_from_anchor=v["sample_from_anchor"],
            target_layers=tuple(i + spec.tap_offset for i in v["target_layer_ids"]),
            mask_token_id=v["mask_token_id"],
            markov_rank=rank,
            markov_head_type=v["markov_head_type"] if v["markov_rank"] else "zero" if rank else "none",
            has_confidence_head=v["enable_confidence_head"],
            vocab_size=v["vocab_size"],
            draft_vocab_size=v["draft_vocab_size"],
            hidden_size=v["hidden_size"],
            intermediate_size=v["intermediate_size"],
            n_layer=v["n_layer"],
            n_head=v["n_head"],
            n_head_kv=v["n_head_kv"],
            head_dim=v["head_dim"],
            context_length=v["context_length"],
            rms_norm_eps=float(v["rms_norm_eps"]),
            rope=rotation.rope(spec.rope_style, v),
            **attention.fields(v),
            has_sinks=v.get("has_sinks", False),
            hidden_act=v.get("hidden_act", "silu"),
            attention_scale=_optional(v, "attention_scale"),
            value_scale=_optional(v, "value_scale"),
            embedding_scale=_optional(v, "embedding_scale"),
            logit_scale=_optional(v, "logit_scale"),
            logit_softcap=_optional(v, "logit_softcap"),
            shared_kv=v.get("shared_kv", False),
            dflash2=selector,
            deepseek4=_deepseek4(v) if spec.backbone == "deepseek4" else None,
            origin=dict(values.origin),
        )
    except KeyError as e:
        if any(finding.severity == "error" for finding in values.findings):
            return None
        what = f"{e.args[0]} gets no value, although nothing is wrong with config.json"
        raise fault(spec.file, "[fields]", what) from None


def _optional(v: Mapping[str, Any], name: str) -> float | None:
    return float(v[name]) if name in v else None


def _deepseek4(v: Mapping[str, Any]) -> DeepSeek4:
    kinds = {"int": int, "float": float, "bool": bool}
    return DeepSeek4(**{field.name: kinds[str(field.type)](v[field.name]) for field in fields(DeepSeek4)})
