"""Finds NaN, infinities and overflow while tensors stream through, and says where they are.

The usual unit is clean, and seeing that must cost next to nothing: two integer maxima over the
output settle it (``is_finite``), because every value that is not finite in the source is not
finite in the output either (or the scale of its block is not). Only a dirty unit is looked at
value by value. Units come from many threads in any order; what is told does not depend on it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.types import BLOCKS, GGMLType
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.tensors import mxfp4, nvfp4, q8_0
from dspark_convert.tensors.casts import bf16_to_f32, f32_to_bf16
from dspark_convert.tensors.quantize import F16_SCALES, WRITABLE, f16_scales
from dspark_convert.tensors.units import Unit

#: dtype of the bits and bit pattern of +infinity
_INFINITY: dict[GGMLType, tuple[str, int]] = {
    GGMLType.F32: ("4", 0x7F800000),
    GGMLType.F16: ("2", 0x7C00),
    GGMLType.BF16: ("2", 0x7F80),
}
#: 6 * 2**(253 - 127) is above float32; 255 is NaN
MXFP4_UNSAFE_SCALE = 253
#: by what the largest magnitude of a block is divided before it becomes the F16 scale. Of a k-quant,
#: which has an F16 minimum too, nothing above F16 is taken.
_LARGEST_CODE = {GGMLType.Q8_0: 127, GGMLType.Q4_0: 8, GGMLType.Q5_0: 16}


@dataclass
class Tally:
    """How many values of one tensor are bad: ``first`` is a flat row-major index in the source."""

    count: int = 0
    first: int = 0
    value: float = 0.0

    def add(self, bad: NDArray[np.bool_], values: NDArray[Any], start: int) -> None:
        """Count the True of ``bad``, which belong to ``values``, from flat index ``start`` on."""
        found = int(np.count_nonzero(bad))
        where = int(np.argmax(bad)) if found else 0
        if found and (not self.count or start + where < self.first):  # parts come in any order
            self.first, self.value = start + where, float(values[where])
        self.count += found


@dataclass
class _Seen:
    """What is known of one source of a tensor."""

    job: TensorJob
    source: Source
    non_finite: Tally = field(default_factory=Tally)
    overflow: Tally = field(default_factory=Tally)


class NonFinite:
    """The bad values of all tensors of one conversion; any thread may report. Truthy once there are any."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._lock = threading.Lock()
        self._jobs = 0

    def __bool__(self) -> bool:
        return bool(self._seen)

    def expect(self, jobs: int) -> int:
        """The number of the first of ``jobs`` more jobs, which follow those before in the order of findings."""
        self._jobs += jobs
        return self._jobs - jobs

    def report(self, number: int, job: TensorJob, unit: Unit, exact: NDArray[Any]) -> None:
        """Judge the values of ``unit`` one by one: ``exact`` [count], float32 or float64, as they are before
        the cast to the type of ``job``, which is number ``number`` of the conversion.

        Codes that are scaled by powers of two know no infinity: one among ``exact`` is an overflow of float32.
        """
        source = job.inputs[unit.source]
        bad = np.isnan(exact) if source.encoding in ("fp8", "fp4") else ~np.isfinite(exact)
        with np.errstate(over="ignore"):
            overflow = ~bad & ~_fits(exact.astype(np.float32, copy=False), job.type)
        if not bad.any() and not overflow.any():
            return
        with self._lock:
            seen = self._seen.setdefault((number, unit.source), _Seen(job, source))
            seen.non_finite.add(bad, exact, unit.start)
            seen.overflow.add(overflow, exact, unit.start)

    def findings(self) -> list[Finding]:
        """One finding for each source and kind, in the order of the tensors in the file."""
        found: list[Finding] = []
        for _, seen in sorted(self._seen.items()):
            ref, total = seen.source.values, prod(seen.source.shape)
            if seen.non_finite.count:
                found.append(
                    error(
                        "non-finite-values",
                        ref.name,
                        f"{ref.path}: {seen.non_finite.count} of {total} values are NaN or infinite, the first "
                        f"({seen.non_finite.value}) at flat index {seen.non_finite.first}.",
                        "the file is damaged: fetch it again, or ask its author for a sound one",
                    )
                )
            if seen.overflow.count:
                found.append(_overflow(seen, total))
        return found


def _overflow(seen: _Seen, total: int) -> Finding:
    narrow = what = seen.job.type.name
    if BLOCKS[seen.job.type][0] > 1 and seen.job.type is not GGMLType.MXFP4:
        narrow, what = "F16", f"the F16 scales of {narrow}"
    return error(
        f"{narrow.lower()}-overflow",
        seen.source.values.name,
        f"{seen.source.values.path}: {seen.overflow.count} of {total} values are too large for {what}, the first "
        f"({seen.overflow.value:g}) at flat index {seen.overflow.first}.",
        "use --outtype bf16 or f32" if narrow == "F16" else "use a wider --outtype",
    )


def is_finite(out: NDArray[np.uint8], ggml_type: GGMLType) -> bool:
    """Whether no value of ``out`` (or no scale, where there are F16 ones) is NaN or infinite; ``out`` is not empty.

    False for MXFP4 only says that a scale is such that values may be. Other types whose blocks are only ever moved
    (``quantize`` does not make them) are not looked at.
    """
    if ggml_type is GGMLType.NVFP4:
        return bool((nvfp4.scales(out) & ~nvfp4.SIGN).max() < nvfp4.NAN_SCALE)
    if ggml_type not in WRITABLE:
        return True
    if ggml_type is GGMLType.MXFP4:
        return bool(mxfp4.scales(out).max() < MXFP4_UNSAFE_SCALE)
    data: NDArray[Any] = out
    if ggml_type is GGMLType.Q8_0:
        data = q8_0.scales(out)
    elif ggml_type in F16_SCALES:
        data = f16_scales(out, ggml_type)
    width, infinity = _INFINITY.get(ggml_type, _INFINITY[GGMLType.F16])
    # Above the pattern of infinity there are only NaN: as signed numbers among the positive ones,
    # as unsigned numbers (sign bit set) among the negative ones.
    negative = infinity | 1 << (8 * int(width) - 1)
    return bool(data.view(f"<i{width}").max() < infinity and data.view(f"<u{width}").max() < negative)


def _fits(values: NDArray[np.float32], ggml_type: GGMLType) -> NDArray[np.bool_]:
    """For every value, whether it stays finite in ``ggml_type``."""
    stored: NDArray[Any] = values
    with np.errstate(over="ignore", invalid="ignore"):
        if ggml_type is GGMLType.BF16:
            stored = bf16_to_f32(f32_to_bf16(values))
        elif ggml_type not in (GGMLType.F32, GGMLType.MXFP4):
            stored = (values / np.float32(_LARGEST_CODE.get(ggml_type, 1))).astype(np.float16)
    finite: NDArray[np.bool_] = np.isfinite(stored)
    return finite
