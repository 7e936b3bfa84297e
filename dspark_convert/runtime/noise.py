"""How far llama.cpp may be from the reference: what its arithmetic alone explains, measured by type.

On the CPU llama.cpp rounds the activations to the type (or the partner type) of the weights that they
are multiplied with: F16 to F16, BF16 to BF16, Q8_0 and the 4 and 5 bit types to Q8_0, the k-quants to Q8_K.
The reference computes with the same weights and exact activations; the difference between both is
this rounding, and everything else is a mistake. ``python -m benchmarks.noise`` measures it;
docs/validation.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from dspark_convert.ggufio.types import GGMLType


@dataclass(frozen=True)
class Tolerance:
    """``logits``: largest difference over the logits' deviation; ``confidence``: largest difference, of 0…1.

    ``margin``: how far an expert that is taken may be behind one that is not, in deviations of all experts' scores:
    nearer, rounding decides between them, see ``choices``. ``middle``: what half of the blocks may differ by, in
    deviations of their own logits, where single ones may differ by more.
    """

    type_name: str
    logits: float
    confidence: float
    margin: float
    middle: float = inf


#: F32 has a round figure, ten times what was measured: mistakes make more. The others are three times
#: the largest difference that was measured, rounded up
EXACT = Tolerance("F32", 1e-4, 1e-5, 1e-4)
#: the same with GELU out of ggml's table of F16 values: where an input lies in the middle of two of its steps, the two
#: sides may take different ones, which moved single blocks of 30 tiny runs by up to 8e-4, half of a run's by 1.5e-4
TABLE = Tolerance("F32 with a table of GELU's values", 2.5e-3, 6e-4, 1e-4, middle=5e-4)
TOLERANCES = {
    GGMLType.F32: EXACT,
    GGMLType.F16: Tolerance("F16", 1e-2, 2e-3, 1e-2),
    GGMLType.BF16: Tolerance("BF16", 9e-2, 1.2e-2, 3e-2),
    GGMLType.Q8_0: Tolerance("Q8_0", 0.3, 5e-2, 0.2),
    # What these are multiplied with is rounded as with Q8_0.
    GGMLType.MXFP4: Tolerance("MXFP4", 0.3, 5e-2, 0.2),
    GGMLType.NVFP4: Tolerance("NVFP4", 0.3, 5e-2, 0.2),
}
#: all other types; the k-quants' partner, one scale for 256 activations, is the coarsest
COARSEST = Tolerance("types below 8 bits", 0.5, 8e-2, 0.35)


def tolerance_for(types: Iterable[GGMLType | int], *, gelu: bool = False) -> Tolerance:
    """The tolerance of a network whose matrices have ``types``: that of the noisiest; ``gelu``: it computes GELU."""
    found = [TOLERANCES.get(GGMLType(kind), COARSEST) for kind in types] + [TABLE] * gelu
    return max(found, key=lambda tolerance: tolerance.logits, default=EXACT)


#: how far layer inputs may be from the PyTorch target's (root mean squares), by the noisiest type of the target's
#: matrices: here the rounding of its weights counts too, because the PyTorch target is not rounded
TARGET_TOLERANCES = {
    GGMLType.F32: 1e-5,
    GGMLType.F16: 2e-3,
    GGMLType.BF16: 2e-2,
    GGMLType.Q8_0: 0.1,
}
#: all other types; another target is 1.4 away
TARGET_COARSEST = 1.1


def target_tolerance(types: Iterable[GGMLType | int]) -> float:
    """The tolerance of the layer inputs of a target whose matrices have ``types``."""
    return max((TARGET_TOLERANCES.get(GGMLType(kind), TARGET_COARSEST) for kind in types), default=1e-5)
