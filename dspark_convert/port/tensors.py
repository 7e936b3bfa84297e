"""The tensors of a draft GGUF as jobs of another: which are written, under which types.

Types follow ``policy``, so that a file that was ported is of the types that a conversion of the checkpoint gives.
Only what stands rounded already is never widened but where ``--outtype`` or ``--experts`` asks for just that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import GGMLType, bits_per_number
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.lint.fixes import SHOWN_NAMES
from dspark_convert.lint.scales import SUFFIXES
from dspark_convert.options import Options
from dspark_convert.shared import EMBEDDINGS, HEAD, TABLES, can_compare, judge_shared
from dspark_convert.source.safetensors_header import TensorRef, read_bytes
from dspark_convert.specs.load import Role, load_specs
from dspark_convert.specs.policy import (
    FLOATS,
    Types,
    fitting,
    judge_dequantize,
    judge_experts,
    plain_type,
    tell_fallbacks,
)
from dspark_convert.target import Target
from dspark_convert.tensors.casts import SOURCE_DTYPES
from dspark_convert.tensors.dequantise import READABLE
from dspark_convert.words import listed

MARKOV_HEAD = ("markov_w1.weight", "markov_w2.weight")


@dataclass(frozen=True)
class Held:
    """A tensor of the file by mainline's name, its role, and how it is read."""

    name: str
    role: Role
    source: Source

    @property
    def stored(self) -> GGMLType:
        return GGMLType[self.source.values.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """In ggml order."""
        return self.source.values.shape[::-1]


def read_tensors(file: GGUFFile, names: Iterable[tuple[GGUFTensor, str]]) -> tuple[list[Held], list[Finding]]:
    """The tensors of ``file``, each with its mainline name, in their order; those of unknown types are findings."""
    held, findings = [], []
    for tensor, name in names:
        if not isinstance(tensor.type, GGMLType) or not tensor.nbytes:
            what = "this version knows no such type" if isinstance(tensor.type, int) else "its rows do not fill blocks"
            message = (
                f"{tensor.name} is {tensor.type_name} with shape {list(tensor.shape)}, which cannot be read: {what}."
            )
            findings.append(error("tensor-type", tensor.name, message, "convert the published checkpoint instead"))
            continue
        ref = TensorRef(
            tensor.name, file.path_of(tensor), tensor.type.name, tensor.shape[::-1], tensor.offset, tensor.nbytes
        )
        plain = ref.dtype in SOURCE_DTYPES
        held.append(Held(name, role_of(name), Source(ref, "plain" if plain else "ggml")))
    return held, findings


def role_of(name: str) -> Role:
    """The role of mainline's tensor ``name``, from the specs; of one that stands in none, by its name."""
    for pattern, role in _roles():
        if pattern.fullmatch(name):
            return role
    return "fixed" if name.endswith(SUFFIXES) else "matrix"


@cache
def _roles() -> tuple[tuple[re.Pattern[str], Role], ...]:
    rules = {rule.gguf: rule.role for spec in load_specs() for rule in reversed(spec.tensors)}
    return tuple((re.compile(re.escape(gguf).replace(r"\{layer\}", r"\d+")), role) for gguf, role in rules.items())


def make_types(options: Options, held: Sequence[Held]) -> Types:
    plain = plain_type(each.source for each in held if each.role != "fixed")
    return Types(options.outtype, options.experts, plain, options.dequantize)


def fold_scales(types: Types, held: Sequence[Held]) -> list[Held]:
    """``held`` without the scales of NVFP4 matrices that become another type, which are multiplied in."""
    by_name = {each.name: each for each in held}
    gone: set[str] = set()
    folded = []
    for each in held:
        scale = by_name.get(scales_of(each.name)[0])
        single = scale is None or (scale.stored is GGMLType.F32 and scale.shape == (1,))
        if each.stored is GGMLType.NVFP4 and single and wanted_for(types, each) is not GGMLType.NVFP4:
            gone.update(scales_of(each.name))
            if scale is not None:
                each = replace(each, source=replace(each.source, tensor_scale=scale.source.values))
        folded.append(each)
    return [each for each in folded if each.name not in gone]


def scales_of(name: str) -> tuple[str, ...]:
    """The names that the scales beside a matrix have."""
    return tuple(f"{name.removesuffix('.weight')}{suffix}" for suffix in SUFFIXES)


def make_port_jobs(types: Types, held: Sequence[Held], draft: Draft) -> tuple[list[TensorJob], list[Finding]]:
    """A job for each tensor, and what is to be told of those whose type changes."""
    wanted = [wanted_for(types, each) for each in held]
    jobs = [
        TensorJob(each.name, fitting(kind, each.shape[0]), each.shape, (each.source,))
        for each, kind in zip(held, wanted, strict=True)
    ]
    changed = [(each, job) for each, job in zip(held, jobs, strict=True) if job.type is not each.stored]
    findings = [
        *judge_experts(types, (each.role for each in held)),
        *judge_dequantize(types, any(each.stored is GGMLType.NVFP4 for each in held)),
        *tell_fallbacks(
            (kind, job)
            for each, kind, job in zip(held, wanted, jobs, strict=True)
            if each.role in ("matrix", "expert") and len(each.shape) > 1
        ),
        *_unreadable(changed),
        *_rounded_again(changed),
    ]
    return [_of_nothing(job) if draft.markov_head_type == "zero" else job for job in jobs], findings


def _of_nothing(job: TensorJob) -> TensorJob:
    """A matrix of the Markov head that was added to a draft without one: its zeros are no damage."""
    if job.name not in MARKOV_HEAD or job.source is None:
        return job
    data = read_bytes(job.source)
    return replace(job, sources=(), transform="zeros") if data.count(0) == len(data) else job


def wanted_for(types: Types, held: Held) -> GGMLType:
    """The type of ``held`` in the new file, if its rows are long enough."""
    stored, role = held.stored, held.role
    if len(held.shape) == 1 or (role == "fixed" and types.asked is not None):
        return GGMLType.F32 if stored.name in SOURCE_DTYPES else stored
    if stored is GGMLType.NVFP4:
        return types.follow(role, types.plain) if types.dequantize else stored
    if types.asked is None and (role != "expert" or types.experts == "keep"):
        return stored
    wanted = types.wanted(role, Source(held.source.values))
    named = role == "matrix" or (role == "expert" and types.experts != "keep")
    if not named and stored not in FLOATS and bits_per_number(stored) <= bits_per_number(wanted):
        return stored
    return wanted


def _unreadable(changed: Sequence[tuple[Held, TensorJob]]) -> list[Finding]:
    names: dict[str, list[str]] = {}
    for held, _ in changed:
        if held.stored.name not in READABLE:
            names.setdefault(held.stored.name, []).append(held.name)
    return [
        error(
            "type-unreadable",
            first[0],
            f"{kind} cannot be turned into another type here: {listed(first, SHOWN_NAMES)}.",
            "leave the types as they are (--outtype auto), or convert the published checkpoint",
        )
        for kind, first in names.items()
    ]


def _rounded_again(changed: Sequence[tuple[Held, TensorJob]]) -> list[Finding]:
    """Of values that were rounded before, so that the new file cannot be as good as one from the checkpoint."""
    kinds: dict[tuple[GGMLType, GGMLType], list[str]] = {}
    for held, job in changed:
        if held.source.encoding == "ggml" and held.stored.name in READABLE:
            kinds.setdefault((held.stored, job.type), []).append(held.name)
    findings = []
    for (before, after), names in kinds.items():
        what = f"{len(names)} tensors, {names[0]} the first," if len(names) > 1 else names[0]
        if after in FLOATS:
            message = f"{what} of {before.name} become {after.name}: larger, and no better than {before.name}."
            findings.append(info("type-widened", names[0], message))
            continue
        message = f"{what} of {before.name} become {after.name}: rounded a second time, which loses more than once."
        fix = "convert the published checkpoint, or a file that was not rounded"
        findings.append(warning("rounded-twice", names[0], message, fix))
    return findings


def choose_shared(
    held: Sequence[Held], draft: Draft, target: Target | None, options: Options
) -> tuple[list[Held], list[Finding]]:
    """The tensors without those that the new file borrows from the target, and what is to be told of them.

    The head of a reduced vocabulary is the draft's own, and so is a mask token's row, with which the tables stay
    whatever ``options`` say, as they are written then.
    """
    reduced = any(each.name == "d2t" for each in held)
    shared = [each for each in held if each.name == EMBEDDINGS or (each.name == HEAD and not reduced)]
    own_row = draft.has_mask_row and any(each.name == EMBEDDINGS for each in shared)
    include = own_row or options.shared_tensors == "include"
    findings = [] if options.shared_tensors == "include" or not own_row else [_tell_kept(shared, draft)]
    compared = 0
    for each in shared if target is not None else ():
        assert target is not None  # noqa: S101 - for the type checker
        mask = None if each.name == HEAD or own_row else draft.mask_token_id
        told = judge_shared(each.source.values, target, head=each.name == HEAD, mask_token_id=mask, included=include)
        findings += told
        compared += can_compare(each.source.values, target, head=each.name == HEAD)
    if include:
        tables = [each.name for each in held if each.name in TABLES]
        names = " and ".join(tables) or "neither"
        if set(tables) != set(TABLES) and not (tables == [EMBEDDINGS] and target is not None and target.tied):
            message = f"embeddings and head must be written both or neither; the file holds {names}."
            findings.append(error("shared-incomplete", names, message, "use --shared-tensors omit"))
        return list(held), findings
    if shared:
        names = " and ".join(each.name for each in shared)
        size = sum(each.source.values.nbytes for each in shared)
        are = "are" if len(shared) > 1 else "is"
        message = f"{names} ({size / 1e6:,.1f} MB) {are} borrowed from the target at run time and not written."
        if compared == len(shared):
            findings.append(info("shared-omitted", names, message))
        else:
            fix = "give the target with its weights, or write the file's own: --shared-tensors include"
            findings.append(warning("shared-omitted", names, f"{message[:-1]}, though not known to be its.", fix))
    gone = {name for each in shared for name in (each.name, *scales_of(each.name))}
    return [each for each in held if each.name not in gone], findings


def _tell_kept(shared: Sequence[Held], draft: Draft) -> Finding:
    names = " and ".join(each.name for each in shared)
    size = sum(each.source.values.nbytes for each in shared)
    message = (
        f"{names} ({size / 1e6:,.1f} MB) are written, for row {draft.mask_token_id} of the embeddings, the mask "
        "token's, is the draft's own: the target's was never trained."
    )
    return info("mask-embedding-written", EMBEDDINGS, message)
