"""Rules over how a draft like Qwen3 or Gemma4 rotates: scaling, sections, frequencies.

What llama.cpp reads of it, and what it leaves unread, is in ``dspark_convert.ggufio.rotation``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, isfinite
from typing import Any

from dspark_convert.findings import Finding, error, warning
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.rotation import FREQUENCIES, STILL, read_frequencies, yarn_length
from dspark_convert.ggufio.values import LazyArray
from dspark_convert.lint.fixes import CORRECT, VALIDATE
from dspark_convert.words import shown

#: ``LLAMA_ROPE_SCALING_TYPES`` of llama.cpp's src/llama-model.cpp
ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
#: axes of M-RoPE
SECTIONS = 4
PREFIX = "dflash.rope.scaling."

#: keys of YaRN that llama.cpp has for other models only -> the values with which it rotates a draft
FIXED: dict[str, tuple[float, ...]] = {
    "yarn_beta_fast": (32.0,),
    "yarn_beta_slow": (1.0,),
    "yarn_ext_factor": (1.0, -1.0),
    "yarn_log_multiplier": (0.0,),
}


def check_rotation(file: GGUFFile) -> Iterator[Finding]:
    """Keys that llama.cpp's loader reads of every draft."""
    scaling = file.metadata.get(f"{PREFIX}type")
    if scaling is not None and scaling not in ROPE_SCALINGS:
        message = (
            f"the scaling of RoPE is {scaling!r}; llama.cpp knows {', '.join(ROPE_SCALINGS)}, and aborts on others."
        )
        yield error("rope-scaling", f"{PREFIX}type", message, CORRECT)
    sections = file.metadata.get("dflash.rope.dimension_sections")
    if isinstance(sections, LazyArray) and len(sections) != SECTIONS:
        message = (
            f"the list has {len(sections):,} entries; llama.cpp refuses a file with another number than {SECTIONS}."
        )
        yield error("rope-sections-count", "dflash.rope.dimension_sections", message, CORRECT)


def check_scaling(file: GGUFFile) -> Iterator[Finding]:
    """What of it llama.cpp computes in layers like Qwen3's."""
    kind = file.metadata.get(f"{PREFIX}type")
    if kind == "longrope":
        message = "the scaling of RoPE is 'longrope', whose factors llama.cpp has no place for in a draft."
        yield error("rope-scaling", f"{PREFIX}type", message, CORRECT)
    factor = _number(file, "factor")
    if factor is not None and not (isfinite(factor) and factor > 0):
        yield error("rope-scaling-factor", f"{PREFIX}factor", f"positions are divided by {factor:g}.", CORRECT)
    elif kind == "yarn":
        yield from _yarn(file, factor)
    yield from _frequencies(file)


def _yarn(file: GGUFFile, factor: float | None) -> Iterator[Finding]:
    if factor is None:
        message = "RoPE is scaled by YaRN and no factor is given, so llama.cpp does not scale it."
        yield error("rope-scaling-factor", f"{PREFIX}factor", message, CORRECT)
        return
    if f"{PREFIX}original_context_length" not in file.metadata:
        message = "the key is missing; llama.cpp takes the draft's own context_length for it."
        yield warning("yarn-context", f"{PREFIX}original_context_length", message, CORRECT)
    trained, applied = _number(file, "yarn_attn_factor"), _number(file, "attn_factor")
    length = yarn_length(factor) * (1.0 if applied is None else applied)
    if trained is not None and not isclose(trained, length, rel_tol=1e-5):
        message = (
            f"the file says {trained:.6g}, which llama.cpp does not read: by attn_factor it lengthens by {length:.6g}."
        )
        yield error("yarn-attention-factor", f"{PREFIX}yarn_attn_factor", message, "convert it with dspark-convert")
    for name, values in FIXED.items():
        value = _number(file, name)
        if value is not None and value not in values:
            message = f"the file says {value:g}, which llama.cpp does not read of a draft: it takes {values[0]:g}."
            yield warning("yarn-unread", f"{PREFIX}{name}", message, VALIDATE)


def _frequencies(file: GGUFFile) -> Iterator[Finding]:
    if file.tensor(FREQUENCIES) is None:
        return
    sections: Any = file.metadata.get("dflash.rope.dimension_sections")
    if isinstance(sections, LazyArray) and any(sections[:SECTIONS]):
        message = "the draft has sections of M-RoPE, with which llama.cpp does not use this tensor."
        yield error("rope-frequencies-unread", FREQUENCIES, message, CORRECT)
    factors = read_frequencies(file)
    if factors is None:
        return  # not here, or of another type, which is told elsewhere
    if not all(factor > 0 for factor in factors):
        message = "frequencies are divided by what is no positive number."
        yield error("rope-frequencies", FREQUENCIES, message, CORRECT)
        return
    turned = sum(factor < STILL for factor in factors)
    if not all(isclose(factor, 1.0) for factor in factors[:turned]) or any(f < STILL for f in factors[turned:]):
        message = f"frequencies are divided by {shown(factors)}; 1 and then 1e30 is what Gemma4 drafts have."
        yield warning("rope-frequencies", FREQUENCIES, message, VALIDATE)


def _number(file: GGUFFile, name: str) -> float | None:
    value = file.metadata.get(f"{PREFIX}{name}")
    return value if isinstance(value, float) else None
