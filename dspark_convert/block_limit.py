"""How long a block llama.cpp's graph has room for: a Markov head takes operations slot by slot.

A graph gets room for max(1024, 8 × tensors of the file) objects (``llama_context::graph_max_nodes``), and the
scheduler's table as many entries as the next size of ggml's hash tables has; it holds weights and caches too.
Only DSpark's Markov head (``build_dspark_markov_head``, src/models/dflash.cpp) grows with the block. llama.cpp aborts
on what is over either: ``GGML_ASSERT(obj_new)``, ``GGML_ASSERT(... hash_set.size ...)``. Counted in October 2026.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fnmatch import filter as named

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, warning

MIN_ROOM, ROOM_PER_TENSOR = 1024, 8
#: sizes of ggml's hash tables, each some twice the one before (``ggml_hash_size``)
TABLES = (1031, 2053, 4099, 8209, 16411, 32771, 65537, 131101)

#: operations of a layer like Qwen3's with flash attention, as llama-server runs it, and without, as validation does
FLASH, PLAIN = 35, 40
#: operations around the layers: embeddings, last norm (2), head
AROUND = 4
#: tokens, positions, mask, places of keys and of values
INPUTS = 5
#: a reduced vocabulary's scattering: five operations and what they fill
SCATTER = 6
#: the encoder's weights, which the block's graph has not
ENCODER = ("fc.weight", "fc.scale", "enc.output_norm.weight")


def judge_block(draft: Draft, names: Collection[str]) -> Iterator[Finding]:
    """Whether llama.cpp's graph holds a block of ``draft``, whose file has tensors of these ``names``, mainline's."""
    if draft.kind != "dspark" or draft.deepseek4:
        return
    longest = longest_block(draft, names, FLASH)
    if draft.block_size > longest:
        message = (
            f"llama.cpp aborts on a block of {draft.block_size} tokens: the Markov head takes operations for each,"
            f" and its graph has room for {longest}."
        )
        fix = f"set block_size to {longest} and convert again; drafts run on shorter blocks too"
        yield error("block-graph", "block_size", message, fix)
    elif draft.block_size > (plain := longest_block(draft, names, PLAIN)):
        message = (
            f"llama.cpp's graph has room for blocks of {longest} tokens, and of {plain} without flash attention: on"
            f" this draft's {draft.block_size} it aborts there, as in dspark-validate."
        )
        yield warning("block-graph", "block_size", message, "keep flash attention on: -fa on")


def longest_block(draft: Draft, names: Collection[str], per_layer: int) -> int:
    """The tokens of the longest block that llama.cpp's graph holds, with ``per_layer`` operations a layer."""
    room = max(MIN_ROOM, ROOM_PER_TENSOR * len(names))
    table = next(size for size in (*TABLES, room) if size >= room)
    reduced, confidence = "d2t" in names, "conf_proj.weight" in names
    # Token, its row and bias, the slot's logits, their sum, the chain to the next one, the best token of it.
    slot = 6 + ("markov_w2.scale" in names) + SCATTER * reduced
    slot += confidence * (6 + ("conf_proj.bias" in names))
    layers = len(named(names, "blk.*.attn_norm.weight"))
    objects = AROUND + per_layer * layers + _extras(draft, names) + SCATTER * reduced + INPUTS
    # The anchor (2), and the order of the blocks restored (4, of the confidences 5).
    objects += 6 + 5 * confidence
    # The last slot needs no best token; the first no chain, but for a slot that drafts nothing.
    objects += -2 - confidence if draft.sample_from_anchor else 1 + 3 * confidence
    weights = len(names) - len(set(ENCODER) & set(names)) + 2 * layers
    weights += sum(name not in names for name in ("token_embd.weight", "output.weight"))
    slots = (min(room, table - weights) - objects) // slot
    return slots + draft.block_size - draft.drafts_per_block


def _extras(draft: Draft, names: Collection[str]) -> int:
    """Operations that layers have beside Qwen3's."""
    norms = named(names, "blk.*.post_attention_norm.weight") + named(names, "blk.*.post_ffw_norm.weight")
    scales = named(names, "blk.*.scale") + named(names, "blk.*.layer_output_scale.weight")
    scaled = named(names, "blk.*.attn_norm.weight") if draft.value_scale else ()
    return 2 * len(norms) + len(scales) + len(scaled) + bool(draft.embedding_scale) + ("output.scale" in names)
