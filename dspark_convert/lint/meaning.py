"""Rules over what a draft means: block, taps, heads, RoPE, window, anchor."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dspark_convert.block_limit import judge_block
from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.lint.dflash2 import check_dflash2
from dspark_convert.lint.fixes import CORRECT
from dspark_convert.lint.layers import check_layers
from dspark_convert.lint.rotation import check_rotation, check_scaling
from dspark_convert.lint.stages import check_stages
from dspark_convert.pair.judge import TOLD_TAPS, judge_order
from dspark_convert.specs.remarks import judge_window
from dspark_convert.words import shown

#: no published draft proposes more than 16 tokens a round; beyond this a value is damage,
#: and ``runtime`` decodes a block in one batch
MAX_BLOCK_SIZE = 256
#: largest head that any published model has is 576; loaders have fixed buffers
MAX_HEAD_DIM = 4096
MAX_HEADS = 4096


def check_meaning(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    yield from _block(file, draft)
    yield from _taps(draft)
    yield from _heads(file, draft)
    yield from _numbers(draft)
    yield from check_rotation(file)
    yield from judge_window(draft, CORRECT)
    if draft.deepseek4 is None:
        yield from _window(draft)
        yield from check_scaling(file)
        yield from check_layers(file, draft)
        yield from check_dflash2(file, draft)
    else:
        yield from check_stages(file, draft, draft.deepseek4)
    yield from _flags(file, draft)


def _block(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    smallest = 1 if draft.sample_from_anchor else 2
    if not smallest <= draft.block_size <= MAX_BLOCK_SIZE:
        message = f"the block size is {draft.block_size}; {smallest} to {MAX_BLOCK_SIZE} make sense."
        yield error("block-size", "block_size", message, CORRECT)
    else:
        yield from judge_block(draft, {tensor.name for tensor in file.tensors})


def _taps(draft: Draft) -> Iterator[Finding]:
    taps = draft.target_layers
    if not taps:
        yield error("taps-empty", "target_layers", "the draft taps no layer of its target.", CORRECT)
    if any(tap < 0 for tap in taps):
        message = (
            f"{list(taps[:TOLD_TAPS])} holds a negative layer, on which llama.cpp aborts; the embeddings' output is 0."
        )
        yield error("taps-negative", "target_layers", message, CORRECT)
    yield from judge_order(taps, "target_layers", CORRECT)


def _heads(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    heads, heads_kv, width = draft.n_head, draft.n_head_kv, draft.head_dim
    if not (0 < heads <= MAX_HEADS and 0 < heads_kv <= heads) or heads % heads_kv:
        message = f"{heads} query heads cannot share {heads_kv} key/value heads evenly."
        yield error("head-counts", "attention.head_count", message, CORRECT)
    rotated = draft.rope.dimension_count
    if not 0 < width <= MAX_HEAD_DIM:
        message = f"heads are {width} wide; 1 to {MAX_HEAD_DIM} make sense."
        yield error("head-width", "attention.key_length", message, CORRECT)
    elif not 0 < rotated <= width or rotated % 2:
        message = f"RoPE rotates {rotated} of a head's {width} dimensions; an even number up to the width is needed."
        yield error("rope-dimensions", "rope.dimension_count", message, CORRECT)
    elif draft.deepseek4 is None:
        # llama.cpp's default for either width
        values = file.metadata.get("dflash.attention.value_length", draft.hidden_size // max(heads, 1))
        if values != width:
            message = f"values are {shown(values)} wide and keys {width}; llama.cpp aborts on a draft like that."
            yield error("value-width", "attention.value_length", message, CORRECT)


def _numbers(draft: Draft) -> Iterator[Finding]:
    eps, base = draft.rms_norm_eps, draft.rope.freq_base
    if not 0 < eps < 1e-2:
        message = f"the epsilon of the norms is {eps:g}; it is 1e-20 to 1e-5 in every published model."
        yield error("norm-epsilon", "attention.layer_norm_rms_epsilon", message, CORRECT)
    if not (math.isfinite(base) and base > 1):
        message = f"the base of RoPE is {base:g}; it is 1e4 to 1e9 in every published model."
        yield error("rope-base", "rope.freq_base", message, CORRECT)


def _window(draft: Draft) -> Iterator[Finding]:
    pattern = draft.sliding_window_pattern
    if draft.sliding_window and not pattern:
        message = "there is a sliding window and no list of the layers that have it, which llama.cpp refuses."
        yield error("window-without-pattern", "attention.sliding_window_pattern", message, CORRECT)
    elif pattern and len(pattern) != draft.n_layer:
        message = f"the list has {len(pattern)} entries for {draft.n_layer} layers."
        yield error("window-pattern-length", "attention.sliding_window_pattern", message, CORRECT)
    elif pattern and draft.sliding_window and not any(pattern):
        message = f"no layer uses the sliding window of {draft.sliding_window}, on which llama.cpp aborts."
        yield error("window-unused", "attention.sliding_window_pattern", message, CORRECT)
    elif any(pattern) and not draft.sliding_window:
        message = "layers are marked for a sliding window that is not given; llama.cpp lets them see the whole context."
        yield warning("pattern-without-window", "attention.sliding_window", message, CORRECT)


def _flags(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    if draft.kind == "dflash" and draft.sample_from_anchor:
        message = (
            "the draft predicts from the anchor on but has no Markov head, by which llama.cpp tells such drafts:"
            " it would read every position one token off."
        )
        fix = "convert it with dspark-convert, which adds a Markov head of zeros"
        yield error("anchor-without-markov", "sample_from_anchor", message, fix)
    if not draft.has_confidence_head and file.tensor("conf_proj.weight") is not None:
        message = "has_confidence_head is false, but the tensor is there: the confidences are never used."
        yield warning("confidence-flag", "conf_proj.weight", message, CORRECT)
    if "dflash.embedding_length_out" in file.metadata:
        message = "llama.cpp takes it for the width of the draft's output and aborts."
        yield error("embedding-length-out", "dflash.embedding_length_out", message, CORRECT)
    if draft.markov_head_type not in ("vanilla", "zero", "none"):
        message = f"the Markov head is {draft.markov_head_type!r}; llama.cpp computes vanilla ones only."
        yield error("markov-type", "dspark.markov_head_type", message)
    flag = file.metadata.get("dflash.has_confidence_head")
    if draft.kind == "dspark" and flag is False and file.tensor("conf_proj.weight") is None:
        message = "the draft has no confidence head: llama.cpp needs --spec-draft-p-min 0 (its default)."
        yield info("no-confidence-head", "has_confidence_head", message)
