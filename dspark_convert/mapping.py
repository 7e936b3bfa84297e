"""A checkpoint's tensors against a spec: who goes where, who is missing, extra or misshapen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error, info
from dspark_convert.formula import FormulaError, evaluate
from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.jobs import Source, TensorJob, Transform
from dspark_convert.source.safetensors_header import TensorRef, read_bytes
from dspark_convert.specs import NameRule, Spec, TensorRule, flat_name

#: dtypes that are numbers as they stand
FLOAT_DTYPES = ("BF16", "F16", "F32", "F64")
#: of one kind, so many are named one by one
NAMED = 20
#: a tensor is only searched for values if it is small
MAX_ZERO_CHECK = 2**20


@dataclass(frozen=True)
class Place:
    """One tensor that the output needs: ``shape`` row-major as stored, ``columns`` as written."""

    rule: TensorRule
    source: str
    gguf: str
    shape: tuple[int, ...] | None
    columns: int | None


def flatten(tensors: Mapping[str, TensorRef]) -> tuple[dict[str, TensorRef], list[Finding]]:
    """Tensors by flat name; the same tensor with and without ``model.`` is an error."""
    flat: dict[str, TensorRef] = {}
    findings = []
    for name, ref in tensors.items():
        short = flat_name(name)
        if short in flat:
            message = f"{flat[short].name!r} and {name!r} are two sources for one tensor."
            findings.append(error("tensor-duplicate", short, message, "remove the stale one"))
        flat.setdefault(short, ref)
    return flat, findings


def expand(spec: Spec, known: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[Place, bool]]:
    """Every tensor that the spec speaks of for this draft, and whether it belongs into it.

    Where a size is unknown (a field is missing or bad) ``shape`` is None and the tensor counts
    as wanted if it is there.
    """
    for per_layer, group in groupby(spec.tensors, key=lambda rule: rule.per_layer):
        rules = list(group)
        for layer in range(known.get("n_layer", 0)) if per_layer else range(1):
            for rule in rules:
                yield _place(rule, layer, known, shapes)


def _place(
    rule: TensorRule, layer: int, known: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Place, bool]:
    source, gguf = rule.source.replace("{layer}", str(layer)), rule.gguf.replace("{layer}", str(layer))
    try:
        wanted = bool(evaluate(rule.when, known, shapes))
    except FormulaError:
        wanted = source in shapes
    try:
        shape = tuple(evaluate(axis, known, shapes) for axis in rule.shape)
        columns = evaluate(rule.gguf_columns, known, shapes) if rule.gguf_columns else shape[-1]
    except FormulaError:
        return Place(rule, source, gguf, None, None), wanted
    return Place(rule, source, gguf, shape, columns), wanted


def check_tensors(
    spec: Spec,
    known: Mapping[str, Any],
    flat: Mapping[str, TensorRef],
    config: Mapping[str, Any],
    *,
    complete: bool = True,
    fetched: bool = True,
) -> tuple[list[Place], list[Finding]]:
    """The places to fill, and every finding about names, shapes and dtypes.

    ``complete``: all files of the checkpoint could be read; if not, nothing is said to be missing.
    ``fetched``: the tensors' bytes lie on the disk, and can be looked at.
    """
    shapes = {name: ref.shape for name, ref in flat.items()}
    findings: list[Finding] = []
    places: list[Place] = []
    missing: list[str] = []
    claimed: set[str] = set()
    for place, wanted in expand(spec, known, shapes):
        claimed.add(place.source)
        ref = flat.get(place.source)
        if ref is None:
            if wanted and complete and not place.rule.optional:
                missing.append(place.source)
            continue
        if not wanted:
            message = f"{place.source} is there, although the config leaves it out ({place.rule.when} is false)."
            findings.append(error("tensor-unexpected", place.source, message, "correct the config"))
            continue
        findings += _shape(place, ref) + _dtype(ref, config)
        places.append(place)
    named, more = _name_some(missing)
    for name in named:
        findings.append(error("tensor-missing", name, f"tensor {name} is missing.", "fetch the whole checkpoint"))
    if more:
        rest = f"{len(more)} further tensors are missing, {more[-1]} among them."
        findings.append(error("tensor-missing", more[0], rest, "fetch the whole checkpoint"))
    if "n_layer" in known:
        findings += _leftovers(spec, {n: r for n, r in flat.items() if n not in claimed}, fetched)
    return places, findings


def _shape(place: Place, ref: TensorRef) -> list[Finding]:
    if place.shape is None or ref.shape == place.shape:
        return []
    formula = ", ".join(place.rule.shape)
    message = f"{place.source} has shape {list(ref.shape)}, but the config makes it [{formula}] = {list(place.shape)}."
    return [error("tensor-shape", place.source, message, "correct the config, or fetch the tensor's file again")]


def _dtype(ref: TensorRef, config: Mapping[str, Any]) -> list[Finding]:
    if ref.dtype in FLOAT_DTYPES:
        return []
    scheme = config.get("quantization_config")
    method = scheme.get("quant_method") if isinstance(scheme, Mapping) else None
    named = f" (quantization_config says {method!r})" if method else ""
    message = f"{ref.name} is {ref.dtype}, expected {', '.join(FLOAT_DTYPES)}: packed or quantised weights{named}."
    return [error("tensor-dtype", ref.name, message, "convert the unquantised checkpoint")]


def _leftovers(spec: Spec, rest: Mapping[str, TensorRef], fetched: bool) -> list[Finding]:
    findings: list[Finding] = []
    unknown = []
    for name, ref in rest.items():
        dropped, refused = _rule(spec.drop, name), _rule(spec.refuse, name)
        if dropped:
            findings.append(info("tensor-dropped", name, f"{name} is left out: {dropped.reason}."))
        elif refused and refused.unless_zero and not fetched:
            message = f"{name} is left out if its values are all zeros, which is seen once they are fetched."
            findings.append(info("tensor-dropped", name, message))
        elif refused and refused.unless_zero and _all_zero(ref):
            message = f"{name} is left out: {refused.reason}, and this one is all zeros."
            findings.append(info("tensor-dropped", name, message))
        elif refused:
            findings.append(error("tensor-unsupported", name, f"{name} cannot be converted: {refused.reason}."))
        else:
            unknown.append(name)
    named, more = _name_some(unknown)
    for name in named:
        message = f"{name} {list(rest[name].shape)} is not known to the {spec.title} spec."
        findings.append(error("tensor-unknown", name, message, "if it may be left out, remove it from the checkpoint"))
    if more:
        message = f"{len(more)} further tensors are unknown, {more[-1]} among them."
        findings.append(error("tensor-unknown", more[0], message))
    return findings


def _name_some(names: list[str]) -> tuple[list[str], list[str]]:
    """Those to name one by one, and those to count (none, or at least two)."""
    return (names, []) if len(names) <= NAMED + 1 else (names[:NAMED], names[NAMED:])


def _rule(rules: tuple[NameRule, ...], name: str) -> NameRule | None:
    return next((rule for rule in rules if fnmatchcase(name, rule.source)), None)


def _all_zero(ref: TensorRef) -> bool:
    if ref.dtype not in FLOAT_DTYPES or ref.nbytes > MAX_ZERO_CHECK:
        return False
    try:
        # A negative zero has a set sign bit and still adds nothing; it is rare enough to be refused.
        return not any(read_bytes(ref))
    except InputError:  # the file is cut short, and there is a finding that says so
        return False


def resolve_outtype(outtype: str, places: list[Place], flat: Mapping[str, TensorRef]) -> GGMLType:
    """The type of matrices; "auto" keeps BF16 sources and makes F16 of all others."""
    if outtype != "auto":
        return GGMLType[outtype.upper()]
    weights: dict[str, int] = {}
    for place in places:
        ref = flat[place.source]
        if len(ref.shape) > 1:
            weights[ref.dtype] = weights.get(ref.dtype, 0) + ref.nbytes
    return GGMLType.BF16 if max(weights, key=lambda dtype: weights[dtype], default="BF16") == "BF16" else GGMLType.F16


def type_of(shape: tuple[int, ...], matrices: GGMLType) -> GGMLType:
    """Vectors are F32; rows that the type's blocks do not divide fall back to F16. ``shape``: ggml order."""
    if len(shape) == 1:
        return GGMLType.F32
    return GGMLType.F16 if shape[0] % BLOCKS[matrices][0] else matrices


def make_jobs(
    spec: Spec,
    known: Mapping[str, Any],
    places: list[Place],
    flat: Mapping[str, TensorRef],
    matrices: GGMLType,
) -> list[TensorJob]:
    """The jobs of checked places and of the spec's zeros, in the spec's order."""
    jobs = []
    for place in places:
        ref = flat[place.source]
        columns = place.columns or ref.shape[-1]
        shape = (columns, *reversed(ref.shape[:-1]))
        padded = columns != ref.shape[-1]
        transform: Transform = "pad_columns" if padded else "copy"
        jobs.append(TensorJob(place.gguf, type_of(shape, matrices), shape, (Source(ref),), transform))
    shapes = {name: ref.shape for name, ref in flat.items()}
    for rule in spec.zeros:
        if evaluate(rule.when, known, shapes):
            shape = tuple(evaluate(axis, known, shapes) for axis in reversed(rule.shape))
            jobs.append(TensorJob(rule.gguf, type_of(shape, matrices), shape, (), "zeros"))
    return jobs
