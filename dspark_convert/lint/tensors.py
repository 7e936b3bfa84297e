"""Rules over the tensors of a draft file: which there are, of what shape and type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.reader import GGUFFile, GGUFTensor
from dspark_convert.ggufio.types import MAX_LAYERS, GGMLType, bits_per_number
from dspark_convert.lint.contract import wanted
from dspark_convert.lint.fixes import AGAIN, REWRITE, SHOWN_NAMES
from dspark_convert.lint.scales import check_scales, is_scale
from dspark_convert.lint.wanted import Wanted, trimmed
from dspark_convert.words import listed

#: ends a name that a fork spells without its ".weight"
SINKS = ".attn_sinks.weight"

#: what adds to the logits directly, or chooses among them
HEADS = (
    "markov_w1.weight",
    "markov_w2.weight",
    "conf_proj.weight",
    "selector_predecessor.weight",
    "selector_successor.weight",
    "selector_hidden.weight",
)

#: tables with a row for each token that the draft may choose
OF_DRAFT_VOCABULARY = ("output.weight", "markov_w2.weight")


def check_tensors(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    if draft.n_layer == 0 or draft.n_layer > MAX_LAYERS:
        message = f"block_count is {draft.n_layer}; llama.cpp takes 1 to {MAX_LAYERS}."
        yield error("block-count", "block_count", message, AGAIN)
        return
    yield from _shared(file, draft)
    yield from _vectors(file.tensors)
    yield from _heads(file.tensors)
    by_name = {item.name: item for item in wanted(file, draft)}
    yield from _missing(file, by_name)
    yield from _unexpected(file, by_name)
    yield from _shapes(file, draft, by_name)
    yield from check_scales(file, draft, by_name)


def _missing(file: GGUFFile, by_name: dict[str, Wanted]) -> Iterator[Finding]:
    missing = [item.name for item in by_name.values() if item.required and file.tensor(item.name) is None]
    bare = [name for name in by_name if name.endswith(SINKS) and file.tensor(name.removesuffix(".weight"))]
    if bare:
        message = f"the attention sinks stand here without .weight, under which llama.cpp looks for {bare[0]}."
        yield error("sinks-name", bare[0].removesuffix(".weight"), message, REWRITE)
        missing = [name for name in missing if name not in bare]
    if "conf_proj.weight" in missing:
        missing.remove("conf_proj.weight")
        message = "has_confidence_head is true, but the tensor is missing: llama.cpp would read garbage confidences."
        yield error("confidence-flag", "conf_proj.weight", message, AGAIN)
    values = [name for name in missing if "attn_v" in name and file.tensor(name.replace("attn_v", "attn_k"))]
    if values:
        message = f"{len(values)} layers have no value projection, in which llama.cpp takes the keys for values."
        yield error("values-missing", values[0], message, AGAIN)
        missing = [name for name in missing if name not in values]
    if missing:
        message = f"llama.cpp needs {len(missing)} more: {listed(missing, SHOWN_NAMES)}."
        yield error("tensor-missing", missing[0], message, AGAIN)


def _unexpected(file: GGUFFile, by_name: dict[str, Wanted]) -> Iterator[Finding]:
    named = {name.removesuffix(".weight") if name.endswith(SINKS) else name for name in by_name} | by_name.keys()
    unknown = [t.name for t in file.tensors if t.name not in named and not is_scale(t, by_name)]
    if unknown:
        message = f"llama.cpp refuses files with tensors that its draft does not have: {listed(unknown, SHOWN_NAMES)}."
        yield error("tensor-unexpected", unknown[0], message, AGAIN)


def _shapes(file: GGUFFile, draft: Draft, by_name: dict[str, Wanted]) -> Iterator[Finding]:
    reduced = _rows_without_d2t(file, draft)
    if reduced:
        message = f"the head is for {reduced:,} of {draft.vocab_size:,} tokens, and no d2t says for which."
        yield error("d2t-missing", "output.weight", message, AGAIN)
    for item in by_name.values():
        tensor = file.tensor(item.name)
        if tensor is None or item.fits(tensor.shape):
            continue
        if reduced and item.name in OF_DRAFT_VOCABULARY and tensor.shape == (item.shape[0], reduced):
            continue
        taps = len(draft.target_layers)
        if item.name == "fc.weight" and tensor.shape[1:] == item.shape[1:]:
            needed = f"{taps} target layers x {draft.hidden_size} = {item.shape[0]}"
            message = f"rows hold {tensor.shape[0]} values, but {needed} are needed."
            yield error("fc-width", item.name, message, "correct target_layers in the config and convert again")
            continue
        message = f"the shape is {list(tensor.shape)}; the metadata says {list(item.shape)} (ggml order)."
        if item.flat and prod(tensor.shape) == prod(item.shape):
            message += " llama.cpp counts the elements alone and takes them as if they stood so."
            yield warning("tensor-shape", item.name, message, AGAIN)
            continue
        yield error("tensor-shape", item.name, message, AGAIN)


def _rows_without_d2t(file: GGUFFile, draft: Draft) -> int:
    """Rows of a head for fewer tokens than there are, where nothing maps these; else 0."""
    output = file.tensor("output.weight")
    if file.tensor("d2t") is not None or output is None or len(output.shape) != 2:
        return 0
    return output.shape[1] if output.shape[1] < draft.vocab_size else 0


def _shared(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    """The tables that a draft may borrow from its target (which llama.cpp takes which pair of)."""
    if draft.has_token_embd and not draft.has_output:
        message = (
            "the embeddings are in the file and the head (output.weight) is not: llama.cpp then uses the"
            " embeddings as head, which is wrong for every target whose two tables differ."
        )
        # Our own converter writes this only after seeing that the target is tied.
        tell = warning if "dspark.converter_version" in file.metadata else error
        yield tell("token-embd-alone", "token_embd.weight", message, "convert with --shared-tensors omit")
    elif draft.has_token_embd:
        message = "the draft has embeddings and head of its own, which llama.cpp before b10952 refuses."
        borrow = "if they are the target's, convert with --shared-tensors omit"
        fix = "" if draft.has_mask_row else borrow
        yield info("own-tables", "token_embd.weight", message, fix)
    if file.tensor("d2t") is not None and not draft.has_output:
        message = f"the reduced vocabulary of {draft.draft_vocab_size} tokens has no head of its own (output.weight)."
        yield error("d2t-without-output", "d2t", message, "convert a checkpoint that has its lm_head")


def _vectors(tensors: Sequence[GGUFTensor]) -> Iterator[Finding]:
    odd = [t for t in tensors if _needs_f32(t) and t.type is not GGMLType.F32]
    if odd:
        names = listed([f"{tensor.name} ({tensor.type_name})" for tensor in odd], SHOWN_NAMES)
        message = f"norms, biases, sinks and DFlash2's bases have to be F32 for llama.cpp: {names}."
        yield error("vector-type", odd[0].name, message, REWRITE)


def _heads(tensors: Sequence[GGUFTensor]) -> Iterator[Finding]:
    """Small matrices whose rounding goes straight into the logits."""
    coarse = (t for t in tensors if t.name in HEADS and _bits(t) < bits_per_number(GGMLType.Q8_0))
    low = [t for t in coarse if t.type is not GGMLType.NVFP4]  # published so: there is nothing finer
    if low:
        names = listed([f"{tensor.name} ({tensor.type_name})" for tensor in low], SHOWN_NAMES)
        message = f"heads have fewer bits than Q8_0: {names}; it saves next to nothing and costs acceptance."
        yield warning("heads-quantised", low[0].name, message, "quantise again and leave these at Q8_0 or more")


def _bits(tensor: GGUFTensor) -> float:
    """Bits a value; of unknown types as many as of F32."""
    if not isinstance(tensor.type, GGMLType):
        return 32
    return bits_per_number(tensor.type)


def _needs_f32(tensor: GGUFTensor) -> bool:
    if tensor.name.endswith("_conv_base"):
        return True
    vector = len(trimmed(tensor.shape)) == 1
    return vector and tensor.name != "d2t" and not tensor.name.startswith("conf_proj.weight")
