"""Which type each tensor gets: what ``--outtype``, ``--experts`` and ``--dequantize`` mean for it.

Vectors are F32, always: norms, biases and sinks are small, and llama.cpp multiplies them in F32.
NVFP4 stays NVFP4 whatever its role, unless ``--dequantize`` or a place that llama.cpp multiplies without
a scale; then it follows like plain numbers. Other matrices go by their role in the spec:

matrix   follow ``--outtype``. ``auto`` is the published layout: FP4 codes become MXFP4, which holds
         the same values; FP8 becomes Q8_0, the type of its size; plain numbers stay BF16 or else F16.
expert   FP4 codes stay MXFP4 under every ``--outtype``, unless ``--experts`` names a type: anything
         smaller loses, anything larger only repeats them. Other numbers follow like a matrix.
router   never below 16 bits: a rounded score sends a token to another expert, and all of it is a
         thousandth of a draft. llama.cpp's own quantisation leaves it alone too.
head     embeddings, output, Markov and confidence head: never below Q8_0. Their errors go straight
         into the logits, and a low-rank head has no other weights to even them out.
ids      I64: token ids, which are no weights.
fixed    F32: weights of hyper-connections, a few kilobytes that every token passes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from dspark_convert.findings import Finding, info, warning
from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.options import Experts, Outtype
from dspark_convert.specs.load import Role

#: types that any number can be written as without blocks
FLOATS = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)

#: what llama.cpp's quantisation takes where blocks of 256 do not fit into a row; both keep the bits
#: at no fewer, and where 32 do not fit either it is F16
NARROW = {GGMLType.Q4_K: GGMLType.Q5_0, GGMLType.Q5_K: GGMLType.Q5_1, GGMLType.Q6_K: GGMLType.Q8_0}


@dataclass(frozen=True)
class Types:
    """The choice for one conversion: ``plain`` is what "auto" makes of numbers that are no codes."""

    outtype: Outtype
    experts: Experts
    plain: GGMLType
    dequantize: bool = False

    @property
    def asked(self) -> GGMLType | None:
        """The type that ``--outtype`` names; None for "auto"."""
        return None if self.outtype == "auto" else GGMLType[self.outtype.upper()]

    def of(self, role: Role, source: Source | None, shape: tuple[int, ...], *, scaled: bool = True) -> GGMLType:
        """The type of a tensor of ``shape`` (ggml order) made from ``source`` (None: from nothing).

        ``scaled``: whether llama.cpp multiplies its product by a number of the file, as NVFP4 needs.
        """
        if role == "ids":
            return GGMLType.I64
        if len(shape) == 1 or role == "fixed":
            return GGMLType.F32
        wanted = self.wanted(role, source)
        if wanted is GGMLType.NVFP4 and (not scaled or shape[0] % BLOCKS[wanted][0]):
            wanted = self.follow(role, self.plain)
        return fitting(wanted, shape[0])

    def wanted(self, role: Role, source: Source | None) -> GGMLType:
        """The type of a matrix whose rows are long enough."""
        encoding = source.encoding if source else "plain"
        if encoding == "nvfp4" and not self.dequantize:
            return GGMLType.NVFP4
        kept = {"fp8": GGMLType.Q8_0, "fp4": GGMLType.MXFP4}.get(encoding, self.plain)
        if role == "expert" and self.experts != "keep":
            return GGMLType[self.experts.upper()]
        if role == "expert" and encoding == "fp4":
            return kept
        return self.follow(role, kept)

    def follow(self, role: Role, kept: GGMLType) -> GGMLType:
        """What ``--outtype`` makes of a matrix of this role, ``kept`` being its published type."""
        asked = self.asked
        if asked is None:
            return kept
        if role == "router" and asked not in FLOATS:
            return self.plain
        if role == "head" and asked not in FLOATS:
            return GGMLType.Q8_0
        return asked


def fitting(wanted: GGMLType, columns: int) -> GGMLType:
    """The type itself if rows of ``columns`` divide into its blocks, else the nearest that fits."""
    if columns % BLOCKS[wanted][0] == 0:
        return wanted
    narrow = NARROW.get(wanted, wanted)
    return GGMLType.F16 if columns % BLOCKS[narrow][0] else narrow


def plain_type(sources: Iterable[Source]) -> GGMLType:
    """What "auto" makes of plain matrices: BF16 if most of their bytes are, F16 of anything else."""
    weights: dict[str, int] = {}
    for source in sources:
        if source.encoding == "plain" and len(source.shape) > 1:
            dtype = source.values.dtype
            weights[dtype] = weights.get(dtype, 0) + source.values.nbytes
    return GGMLType.BF16 if max(weights, key=lambda dtype: weights[dtype], default="BF16") == "BF16" else GGMLType.F16


def main_type(made: Sequence[tuple[Role, TensorJob]]) -> GGMLType:
    """The type of most weights, heads apart: what ``general.file_type`` calls the file."""
    weights: dict[GGMLType, int] = {}
    for role, job in made:
        if role in ("matrix", "expert") and len(job.shape) > 1:
            weights[job.type] = weights.get(job.type, 0) + prod(job.shape)
    return max(weights, key=lambda kind: weights[kind], default=GGMLType.F32)


def label(types: Types, made: Sequence[tuple[Role, TensorJob]]) -> str:
    """The choice in short, for a file's name: two choices that differ have two names."""
    kept = types.experts == "keep" or not any(role == "expert" for role, _ in made)
    experts = "" if kept else f"experts-{types.experts.upper()}"
    if types.asked is not None:
        return f"{types.asked.name}-{experts}" if experts else types.asked.name
    # As llama.cpp calls a file of which the experts alone are MXFP4.
    main = main_type(made)
    return experts or (f"{main.name}_MOE" if main is GGMLType.MXFP4 else main.name)


def judge_types(types: Types, made: Sequence[tuple[Role, TensorJob]]) -> list[Finding]:
    """What became of the choice that a user would not expect."""
    matrices = [(role, job) for role, job in made if role in ("matrix", "expert") and len(job.shape) > 1]
    return [
        *judge_experts(types, (role for role, _ in made)),
        *judge_dequantize(types, any(source.encoding == "nvfp4" for _, job in made for source in job.sources)),
        *tell_fallbacks((types.wanted(role, job.sources[0]), job) for role, job in matrices),
    ]


def judge_experts(types: Types, roles: Iterable[Role]) -> list[Finding]:
    if types.experts == "keep" or "expert" in roles:
        return []
    return [warning("no-experts", "--experts", "the draft has no experts, so --experts changes nothing.")]


def judge_dequantize(types: Types, nvfp4: bool) -> list[Finding]:
    """``nvfp4``: whether the draft holds any."""
    if nvfp4 or not types.dequantize:
        return []
    return [warning("no-nvfp4", "--dequantize", "the draft holds no NVFP4, so --dequantize changes nothing.")]


def tell_fallbacks(wanted_for: Iterable[tuple[GGMLType, TensorJob]]) -> list[Finding]:
    """Of jobs whose type is not the one that was wanted for them."""
    findings = []
    other: dict[tuple[GGMLType, GGMLType], list[str]] = {}
    for wanted, job in wanted_for:
        if job.type != wanted:
            other.setdefault((wanted, job.type), []).append(job.name)
    for (wanted, kind), names in other.items():
        many = f"{len(names)} tensors, {names[0]} the first, have" if len(names) > 1 else f"{names[0]} has"
        message = f"{many} rows that blocks of {BLOCKS[wanted][0]} ({wanted.name}) do not divide: {kind.name} instead."
        findings.append(info("type-fallback", names[0], message))
    return findings
