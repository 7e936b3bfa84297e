"""Finds NaN, infinities and overflow while tensors stream through, and says where they are.

The usual block is clean, and seeing that must cost next to nothing. Every value that is not
finite in the source is not finite in the output either (for Q8_0: in the scale of its block), so
two integer maxima over the output settle it; only a dirty block is looked at value by value.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.types import GGMLType
from dspark_convert.jobs import TensorJob
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.tensors import q8_0
from dspark_convert.tensors.casts import Numbers, bf16_to_f32, f32_to_bf16, to_f32

#: dtype of the bits and bit pattern of +infinity
_INFINITY: dict[GGMLType, tuple[str, int]] = {
    GGMLType.F32: ("4", 0x7F800000),
    GGMLType.F16: ("2", 0x7C00),
    GGMLType.BF16: ("2", 0x7F80),
    GGMLType.Q8_0: ("2", 0x7C00),
}


@dataclass
class Tally:
    """How many values of one tensor are bad: ``first`` is a flat row-major index in the source."""

    count: int = 0
    first: int = 0
    value: float = 0.0

    def add(self, bad: NDArray[np.bool_], values: NDArray[Any], start: int) -> None:
        """Count the True of ``bad``, which belong to ``values``, from flat index ``start`` on."""
        found = int(np.count_nonzero(bad))
        if found and not self.count:
            where = int(np.argmax(bad))
            self.first, self.value = start + where, float(values[where])
        self.count += found


class NonFinite:
    """The bad values of all tensors of one conversion. Truthy once there are any."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[TensorJob, TensorRef, Tally, Tally]] = {}

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def look(self, job: TensorJob, source: TensorRef, values: Numbers, out: NDArray[np.uint8], start: int) -> None:
        """Check the block ``values`` (as read; element ``start`` and on) that was cast to ``out``."""
        if is_finite(out, job.type):
            return
        flat = values.reshape(-1)
        wide = to_f32(flat, source.dtype)
        exact = flat if source.dtype == "F64" else wide
        finite = np.isfinite(exact)
        _, _, non_finite, overflow = self._jobs.setdefault(job.name, (job, source, Tally(), Tally()))
        non_finite.add(~finite, exact, start)
        overflow.add(finite & ~_fits(wide, job.type), exact, start)

    def findings(self) -> list[Finding]:
        """One finding for each tensor and kind, in the order in which the tensors came."""
        found: list[Finding] = []
        for job, source, non_finite, overflow in self._jobs.values():
            total = prod(source.shape)
            if non_finite.count:
                found.append(
                    error(
                        "non-finite-values",
                        source.name,
                        f"{source.path}: {non_finite.count} of {total} values are NaN or infinite, the first "
                        f"({non_finite.value}) at flat index {non_finite.first}.",
                        "the checkpoint is damaged: fetch it again, or ask its author for a sound one",
                    )
                )
            if overflow.count:
                narrow = "F16" if job.type is GGMLType.Q8_0 else job.type.name
                what = "the F16 scales of Q8_0" if job.type is GGMLType.Q8_0 else narrow
                found.append(
                    error(
                        f"{narrow.lower()}-overflow",
                        source.name,
                        f"{source.path}: {overflow.count} of {total} values are too large for {what}, the first "
                        f"({overflow.value:g}) at flat index {overflow.first}.",
                        "use --outtype bf16 or f32" if narrow == "F16" else "use a wider --outtype",
                    )
                )
        return found


def is_finite(out: NDArray[np.uint8], ggml_type: GGMLType) -> bool:
    """Whether no value of ``out`` (for Q8_0: no scale) is NaN or infinite; ``out`` is not empty."""
    width, infinity = _INFINITY[ggml_type]
    data: NDArray[Any] = q8_0.scales(out) if ggml_type is GGMLType.Q8_0 else out
    # Above the pattern of infinity there are only NaN: as signed numbers among the positive ones,
    # as unsigned numbers (sign bit set) among the negative ones.
    negative = infinity | 1 << (8 * int(width) - 1)
    return bool(data.view(f"<i{width}").max() < infinity and data.view(f"<u{width}").max() < negative)


def _fits(values: NDArray[np.float32], ggml_type: GGMLType) -> NDArray[np.bool_]:
    """For every value, whether it stays finite in ``ggml_type``."""
    stored: NDArray[Any] = values
    with np.errstate(over="ignore", invalid="ignore"):
        if ggml_type is GGMLType.Q8_0:
            stored = (values / np.float32(127)).astype(np.float16)
        elif ggml_type is GGMLType.F16:
            stored = values.astype(np.float16)
        elif ggml_type is GGMLType.BF16:
            stored = bf16_to_f32(f32_to_bf16(values))
    finite: NDArray[np.bool_] = np.isfinite(stored)
    return finite
