"""A checkpoint's tensors against a spec: who goes where, who is missing, extra or misshapen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error, info
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.source.safetensors_header import TensorRef, read_bytes
from dspark_convert.specs.computed import HOW
from dspark_convert.specs.formula import evaluate
from dspark_convert.specs.load import NameRule, Role, Spec
from dspark_convert.specs.missing import NAMED, Missing, name_some, tell_missing
from dspark_convert.specs.places import Place, expand
from dspark_convert.specs.policy import Types
from dspark_convert.specs.scales import PACKED, judge_number, partner, partners, read_source
from dspark_convert.words import shown

#: dtypes that are numbers as they stand
FLOAT_DTYPES = ("BF16", "F16", "F32", "F64")
#: what llama.cpp multiplies without a scale beside it, so that NVFP4 cannot stay
UNSCALED = (
    "token_embd.weight",
    "markov_w1.weight",
    "conf_proj.weight",
    "selector_predecessor.weight",
    "selector_successor.weight",
    "selector_hidden.weight",
    "blk.{layer}.attn_conv_proj.weight",
    "blk.{layer}.ffn_conv_proj.weight",
)
#: dtypes of token ids
ID_DTYPES = ("I64", "I32")
#: a tensor is only searched for values if it is small
MAX_ZERO_CHECK = 2**20


def flatten(spec: Spec, tensors: Mapping[str, TensorRef]) -> tuple[dict[str, TensorRef], list[Finding]]:
    """The draft's tensors by flat name; the same one by two names (with and without ``model.``) is an error."""
    flat: dict[str, TensorRef] = {}
    findings = []
    for name, ref in tensors.items():
        short = spec.flat_name(name)
        if not spec.speaks_of(short):
            continue
        if short in flat:
            message = f"{flat[short].name!r} and {name!r} are two sources for one tensor."
            findings.append(error("tensor-duplicate", short, message, "remove the stale one"))
        flat.setdefault(short, ref)
    return flat, findings


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
    missing: list[Missing] = []
    claimed: set[str] = set()
    packed: list[TensorRef] = []
    for place, wanted in expand(spec, known, shapes):
        held = []
        for number, name in enumerate(place.sources):
            scale = partner(spec.scales, name)
            claimed |= {name, *partners(spec.scales, name, flat)}
            if name in flat:
                held.append(name)
            elif wanted and complete and (scale in flat or not place.optional):
                expert = number if place.rule.stack else None
                missing.append(Missing(place, name, expert, scale if scale in flat else None))
        if held and not wanted:
            message = f"{held[0]} is there, although the config leaves it out ({place.rule.when} is false)."
            findings.append(error("tensor-unexpected", held[0], message, "correct the config"))
        elif held:
            sources, problems = _read(spec, place, held, flat, known)
            if not place.rule.offsets:
                packed += [source.values for source in sources if _is_packed(source)]
            if place.rule.offsets and not problems and fetched and "vocab_size" in known:
                problems = _judge_ids(sources[0], known["vocab_size"], flat.get("t2d"))
            if fetched:
                problems += [f for source in sources if source.tensor_scale for f in judge_number(source.tensor_scale)]
            findings += problems
            places.append(replace(place, read=tuple(sources)))
    findings += _tell_packed(packed, config)
    findings += tell_missing(spec, known.get("n_layer", 0), missing, flat)
    if "n_layer" in known:
        rest = {name: ref for name, ref in flat.items() if name not in claimed}
        findings += _leftovers(spec, rest, _method(config), fetched)
    return places, findings


def _read(
    spec: Spec,
    place: Place,
    names: list[str],
    flat: Mapping[str, TensorRef],
    known: Mapping[str, Any],
) -> tuple[list[Source], list[Finding]]:
    """The sources of a place that are there, and what is wrong with them."""
    sources: list[Source] = []
    findings: list[Finding] = []
    for name in names:
        ref = flat[name]
        source = read_source(ref, spec.scales, flat, name, known)
        problems = _shape(place, name, ref, spec)
        if not problems and not isinstance(source, Source):
            problems = [source]
        if isinstance(source, Source):
            problems += _ids(source) if place.rule.offsets else []
            sources.append(source)
        findings += problems
    kinds = {source.encoding for source in sources}
    if len(kinds) > 1:
        message = f"{place.source} and those stacked with it are stored in different ways: {', '.join(sorted(kinds))}."
        findings.append(error("tensor-dtype", place.source, message, "convert the checkpoint as it was published"))
    named, more = findings[:NAMED], findings[NAMED:]
    if len(more) > 1:
        message = f"{len(more)} further tensors like {more[0].where} are wrong."
        return sources, [*named, error(more[0].rule, more[0].where, message, more[0].fix)]
    return sources, findings


def _shape(place: Place, name: str, ref: TensorRef, spec: Spec) -> list[Finding]:
    shape = ref.shape
    if shape and ref.dtype in PACKED and partners(spec.scales, name, {name: ref}):
        shape = (*shape[:-1], 2 * shape[-1])
    if place.shape is None or shape == place.shape:
        return []
    formula = ", ".join(place.rule.shape)
    message = f"{name} has shape {shown(list(shape))}, but the config makes it [{formula}] = {list(place.shape)}."
    return [error("tensor-shape", name, message, "correct the config, or fetch the tensor's file again")]


def _is_packed(source: Source) -> bool:
    return source.encoding == "plain" and source.values.dtype not in FLOAT_DTYPES


def _tell_packed(packed: list[TensorRef], config: Mapping[str, Any]) -> Iterator[Finding]:
    """One error for all tensors of a dtype: whoever packs one packs most."""
    by_dtype: dict[str, list[str]] = {}
    for ref in packed:
        by_dtype.setdefault(ref.dtype, []).append(ref.name)
    for dtype, names in by_dtype.items():
        what = f"packed or quantised weights{_method(config)}"
        message = f"{_first(names)} {dtype}, expected {', '.join(FLOAT_DTYPES)}: {what}."
        yield error("tensor-dtype", names[0], message, "convert the unquantised checkpoint")


def _first(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are"


def _method(config: Mapping[str, Any]) -> str:
    scheme = config.get("quantization_config")
    method = scheme.get("quant_method") if isinstance(scheme, Mapping) else None
    return f" (quantization_config says {method!r})" if method else ""


def _ids(source: Source) -> list[Finding]:
    ref = source.values
    if ref.dtype in ID_DTYPES:
        return []
    message = f"{ref.name} is {ref.dtype}, expected {' or '.join(ID_DTYPES)}: a table of token ids."
    return [error("tensor-dtype", ref.name, message, "convert the checkpoint as it was published")]


def _judge_ids(source: Source, vocab_size: int, marks: TensorRef | None) -> list[Finding]:
    from dspark_convert.tensors.ids import judge_ids, judge_marks

    ref = source.values
    try:
        values = read_bytes(ref)
        found = judge_ids(ref.name, values, ref.dtype, vocab_size)
        if marks is None or (marks.dtype, marks.shape) != ("BOOL", (vocab_size,)):
            return found
        bad = any(finding.severity == "error" for finding in found)
        return found if bad else judge_marks(ref.name, values, ref.dtype, read_bytes(marks))
    except InputError:  # the file is cut short, and there is a finding that says so
        return []


def _leftovers(spec: Spec, rest: Mapping[str, TensorRef], method: str, fetched: bool) -> list[Finding]:
    findings: list[Finding] = []
    unknown = []
    unsupported: dict[str, list[str]] = {}
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
            by = "" if ref.dtype in FLOAT_DTYPES else method
            unsupported.setdefault(f"{refused.reason}{by}", []).append(name)
        else:
            unknown.append(name)
    for reason, names in unsupported.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        message = f"{names[0]}{others} cannot be converted: {reason}."
        findings.append(error("tensor-unsupported", names[0], message))
    # Of a family that is shown only, nobody need know what else it holds.
    named, more = name_some([] if spec.unsupported else unknown)
    for name in named:
        message = f"{name} {shown(list(rest[name].shape))} is not known to the {spec.title} spec."
        findings.append(error("tensor-unknown", name, message, "if it may be left out, remove it from the checkpoint"))
    if more:
        message = f"{len(more)} further tensors are unknown, {more[-1]} among them."
        findings.append(error("tensor-unknown", more[0], message))
    return findings


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


def make_jobs(
    spec: Spec, known: Mapping[str, Any], places: list[Place], flat: Mapping[str, TensorRef], types: Types
) -> list[tuple[Role, TensorJob]]:
    """The jobs of checked places and of what the spec adds, in the spec's order, each with what it is for."""
    jobs: list[tuple[Role, TensorJob]] = []
    for place in places:
        job = _job(place, known, types)
        jobs.append((place.rule.role, job))
        scale = place.read[0].tensor_scale
        if scale is not None and job.type is GGMLType.NVFP4:
            name = f"{place.gguf.removesuffix('.weight')}.scale"
            jobs.append(("fixed", TensorJob(name, GGMLType.F32, (1,), (Source(scale),))))
    shapes = {name: ref.shape for name, ref in flat.items()}

    def shape(axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(evaluate(axis, known, shapes) for axis in reversed(axes))

    for zeros in spec.zeros:
        if evaluate(zeros.when, known, shapes):
            size = shape(zeros.shape)
            jobs.append(("head", TensorJob(zeros.gguf, types.of("head", None, size), size, (), "zeros")))
    for rule in spec.computed:
        if evaluate(rule.when, known, shapes):
            data = HOW[rule.how](known)
            job = TensorJob(rule.gguf, GGMLType.F32, shape(rule.shape), (), "literal", literal=data)
            jobs.append(("fixed", job))
    return jobs


def _job(place: Place, known: Mapping[str, Any], types: Types) -> TensorJob:
    source = place.read[0]
    columns = place.columns or source.shape[-1]
    shape = (columns, *reversed(source.shape[:-1]), *([len(place.read)] if place.rule.stack else []))
    kind = types.of(place.rule.role, source, shape, scaled=place.rule.gguf not in UNSCALED)
    job = TensorJob(place.gguf, kind, shape, place.read)
    if place.rule.offsets:
        return replace(job, transform="absolute_ids")
    if place.rule.pairs and not known.get("rope_neox", True):
        return replace(job, transform="unpair", head_dim=known["head_dim"])
    return job if columns == source.shape[-1] else replace(job, transform="pad_columns")
