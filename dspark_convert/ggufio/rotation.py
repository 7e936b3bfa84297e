"""How a draft GGUF rotates: its RoPE keys and the tensor of frequencies.

Which keys count is what llama.cpp reads for the architecture ``dflash`` (src/llama-model.cpp and
llama-context.cpp): of YaRN the factor, the original context and ``attn_factor``. ``yarn_*`` are names that
it has for other models; in a draft they only say what was trained.
"""

from __future__ import annotations

import struct
from math import isclose, log
from typing import Any, Literal

from dspark_convert.draft import Rope
from dspark_convert.findings import error, warning
from dspark_convert.ggufio.keys import Keys
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.types import GGMLType, ValueType

#: RoPE base that llama.cpp assumes
DEFAULT_FREQ_BASE = 10_000.0

#: divisors of the frequencies, one a pair
FREQUENCIES = "rope_freqs.weight"
#: pairs of the widest head that makes sense; a longer tensor is damage and is not decoded
MAX_PAIRS = 2048
#: a pair whose frequency is divided by as much as this does not turn
STILL = 1e20

#: key behind ``rope.scaling.`` -> field of ``Rope.scaling``
YARN = {"yarn_attn_factor": "attention_factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}


def yarn_length(factor: float) -> float:
    """By what YaRN with ``factor`` makes rotated vectors longer, unless told otherwise (its paper, section 3.4)."""
    return 0.1 * log(factor) + 1 if factor > 1 else 1.0


def read_rope(keys: Keys, head_dim: int, *, stages: bool) -> Rope:
    """``stages``: those of a DeepSeek-V4 draft, which rotate neighbouring pairs and never scale."""
    base = keys.number("rope.freq_base", ValueType.FLOAT32)
    if base is None:
        message = f"the key is missing; llama.cpp takes {DEFAULT_FREQ_BASE:g}, which is seldom what was trained."
        keys.findings.append(warning("key-default", f"{keys.prefix}.rope.freq_base", message))
        base = DEFAULT_FREQ_BASE
    count = keys.number("rope.dimension_count", ValueType.UINT32)
    stated = keys.full("dspark.rope_style", ValueType.STRING)
    # Of the graphs that run drafts only DeepSeek-V4's rotates neighbouring pairs.
    style: Literal["neox", "norm"] = "norm" if stages else "neox"
    if stated is not None and stated != style:
        message = f"the file says {stated!r}, but llama.cpp rotates this draft {style!r}: all it computes is wrong."
        keys.findings.append(error("rope-style", "dspark.rope_style", message, "convert the draft again"))
    scaling = None if stages else _proportional(keys) or _scaling(keys)
    return Rope(style, head_dim if count is None else count, base, scaling)


def _scaling(keys: Keys) -> dict[str, Any] | None:
    """A factor without a type is a linear one, as for llama.cpp."""
    kind = keys.number("rope.scaling.type", ValueType.STRING)
    factor = keys.number("rope.scaling.factor", ValueType.FLOAT32)
    if factor is None:
        factor = keys.number("rope.scale_linear", ValueType.FLOAT32)
    if kind == "none" or (kind is None and factor in (None, 0.0, 1.0)):
        return None
    scaling: dict[str, Any] = {"type": kind or "linear"}
    if factor is not None:
        scaling["factor"] = factor
    if kind != "yarn":
        return scaling
    original = keys.number("rope.scaling.original_context_length", ValueType.UINT32)
    if original is not None:
        scaling["original_context_length"] = original
    applied = keys.number("rope.scaling.attn_factor", ValueType.FLOAT32)
    if applied is not None:
        scaling["attention_factor"] = applied * yarn_length(factor or 1.0)
    for name, field in YARN.items():
        value = keys.file.metadata.get(f"{keys.prefix}.rope.scaling.{name}")
        if isinstance(value, float):  # of any width, as llama.cpp does not read it
            scaling[field] = value
    return scaling


def _proportional(keys: Keys) -> dict[str, Any] | None:
    """The frequencies that the tensor leaves as they are, where it stills the others; without its values (on the
    hub) what the file says of them."""
    stated: int | None = keys.full("dspark.rope_rotated", ValueType.UINT32)
    factors = read_frequencies(keys.file)
    if factors is None:
        return {"type": "proportional", "rotated": stated} if stated is not None else None
    turned = sum(factor < STILL for factor in factors)
    if turned == len(factors) and all(isclose(factor, 1.0) for factor in factors):
        return None
    if stated is not None and stated != 2 * turned:
        message = f"the file says {stated} here, but by {FREQUENCIES} {2 * turned} dimensions turn."
        keys.findings.append(error("meaning-disagrees", "dspark.rope_rotated", message, "convert the draft again"))
    return {"type": "proportional", "rotated": 2 * turned}


def read_frequencies(file: GGUFFile) -> tuple[float, ...] | None:
    """The divisors of the frequencies, or None where there are none that llama.cpp could read."""
    tensor = file.tensor(FREQUENCIES)
    if tensor is None or tensor.type is not GGMLType.F32 or not file.holds(tensor):
        return None
    if len(tensor.shape) != 1 or tensor.shape[0] > MAX_PAIRS:
        return None
    order = "<" if file.byte_order == "little" else ">"
    return struct.unpack(f"{order}{tensor.shape[0]}f", file.data(tensor))
