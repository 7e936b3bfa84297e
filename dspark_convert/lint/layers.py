"""Rules over layers like Qwen3's: scales, activation, widths, what only some layers have, causality.

Each is what ``src/models/dflash.cpp`` reads, asserts or takes for granted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import isfinite

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.layers import GELU, SCALES
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.lint.fixes import CORRECT, VALIDATE
from dspark_convert.specs.remarks import unapplied
from dspark_convert.words import shown

#: tensors that llama.cpp looks for layer by layer, and that a model has in all or in none
OPTIONAL = re.compile(r"blk\.\d+\.(attn_sinks|post_attention_norm|post_ffw_norm|layer_output_scale)\.weight")

ACTIVATION = "dflash.hidden_activation"


def check_layers(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    yield from _scales(draft)
    yield from _logits(draft)
    yield from _activation(file)
    yield from _shared_keys(file, draft)
    yield from _uneven(file, draft)
    yield from _partial(file, draft)
    yield from _causal(draft)


def _scales(draft: Draft) -> Iterator[Finding]:
    for key, field in SCALES.items():
        value = getattr(draft, field)
        if value is not None and not (isfinite(value) and value > 0):
            yield error("scale-value", key, f"the scale is {value:g}; a positive number is expected.", CORRECT)


def _logits(draft: Draft) -> Iterator[Finding]:
    for key, value, biased in unapplied(draft):
        said = f"the file says {value:g}, which llama.cpp applies to DFlash2 drafts only"
        if biased:
            message = f"{said}: the Markov head adds to logits that are larger than in training."
            yield warning("logits-unscaled", key, message, VALIDATE)
        else:
            yield info("logits-unscaled", key, f"{said}; the same tokens are drafted without it.")


def _activation(file: GGUFFile) -> Iterator[Finding]:
    stated = file.metadata.get(ACTIVATION)
    if stated is not None and stated not in ("silu", *GELU):
        message = f"the activation is {shown(stated)}; llama.cpp has silu and {' and '.join(GELU)}, and refuses others."
        yield error("activation", "hidden_activation", message, CORRECT)


def _shared_keys(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    """Gemma4's layers, which have GELU too, are the only ones that mean it."""
    if draft.shared_kv and file.metadata.get(ACTIVATION) in (None, "silu"):
        message = "no layer has a value projection, so llama.cpp uses the keys as values; only Gemma4 drafts mean that."
        yield warning("values-missing", "blk.*.attn_v.weight", message, CORRECT)


def _uneven(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    held = Counter(match[1] for tensor in file.tensors if (match := OPTIONAL.fullmatch(tensor.name)))
    for name, count in held.items():
        if count < draft.n_layer:
            message = f"{count} of {draft.n_layer} layers have this tensor; llama.cpp leaves it out of the others."
            yield warning("layers-differ", f"blk.*.{name}.weight", message, CORRECT)


def _partial(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    """Trainers copy the target's config, and a factor of its rotation with it that their own class never reads."""
    turned, width = draft.rope.dimension_count, draft.head_dim
    even = 0 < turned < width and not turned % 2  # other numbers are told as wrong
    if even and draft.kind == "dspark" and "dspark.converter_version" not in file.metadata:
        message = (
            f"{turned} of {width} dimensions turn; every published DSpark draft that llama.cpp can run turns them all."
        )
        fix = "convert the published checkpoint with dspark-convert, which knows where that factor counts"
        yield warning("rope-partial", "rope.dimension_count", message, fix)


def _causal(draft: Draft) -> Iterator[Finding]:
    pattern = draft.causal_pattern
    if pattern and len(pattern) != draft.n_layer:
        message = f"the list has {len(pattern)} entries for {draft.n_layer} layers."
        yield error("causal-pattern-length", "dspark.causal_pattern", message, CORRECT)
    elif len(set(pattern)) > 1:
        layers = [number for number, causal in enumerate(pattern) if causal]
        written = "causal" if draft.causal else "both ways"
        message = f"layers {shown(layers)} were trained causal and the others not; llama.cpp runs all {written}."
        yield warning("causal-mixed", "dspark.causal_pattern", message, VALIDATE)
    elif pattern and pattern[0] != draft.causal:
        message = f"all layers were trained {'causal' if pattern[0] else 'both ways'}, but the flag says otherwise."
        yield error("meaning-disagrees", "dspark.causal_pattern", message, CORRECT)
