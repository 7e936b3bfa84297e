"""What a draft GGUF means: its metadata and tensor shapes -> Draft.

A file of any layout is first put into mainline's words (``dspark_convert.ggufio.layouts``) and then read
as one of mainline's. Beside the runtime's keys our own files say the rest of the meaning under
``dspark.*``; where both speak they have to agree. A key that is missing means what llama.cpp takes
it to mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from dspark_convert.draft import Draft, Kind
from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error, warning
from dspark_convert.ggufio.keys import INTEGERS, Keys
from dspark_convert.ggufio.layers import layers_like, read_layers
from dspark_convert.ggufio.layouts import Layout, find_layout
from dspark_convert.ggufio.layouts.differences import check_layout
from dspark_convert.ggufio.layouts.fork_types import check_fork_types
from dspark_convert.ggufio.layouts.view import View, view
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.ggufio.rotation import read_rope
from dspark_convert.ggufio.stages import has_stages, read_stages
from dspark_convert.ggufio.types import ValueType
from dspark_convert.words import shown

#: block size that llama.cpp assumes for a DFlash draft that does not say
DEFAULT_BLOCK_SIZE = 16

#: a layer's attention sinks; TensorSharp leaves the suffix out
SINKS = re.compile(r"blk\.\d+\.attn_sinks(\.weight)?")

#: our own key -> the Draft's attribute that it has to agree with
MEANING: dict[str, str] = {
    "dspark.block_size": "block_size",
    "dspark.target_layers": "target_layers",
    "dspark.mask_token_id": "mask_token_id",
    "dspark.sample_from_anchor": "sample_from_anchor",
    "dspark.markov_rank": "markov_rank",
    "dspark.has_confidence_head": "has_confidence_head",
}


@dataclass(frozen=True)
class Reading:
    """``draft`` is None where the layout is not read or a value that it needs is missing.

    ``dialect`` is the layout's name; ``view`` has the file in mainline's words. ``findings`` name the
    file's own keys and tensors.
    """

    dialect: str
    draft: Draft | None
    findings: tuple[Finding, ...]
    view: View


def read_draft(file: GGUFFile, target: GGUFFile | None = None) -> Reading:
    """The meaning of an open file, with findings about its layout and metadata.

    ``target`` is its open target's GGUF, for layouts that leave sizes to it. Raises InputError if the
    file is no draft, saying what it is.
    """
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise InputError(f"{file.path} is no model: it has no general.architecture.")
    layout = find_layout(architecture, file)
    if layout is None:
        raise InputError(_describe(file, architecture))
    seen = view(file, layout, target)
    findings = [*check_fork_types(file), *check_layout(seen)]
    if layout.unreadable or (seen.sizes is not None and seen.sizes.severity == "error"):
        return Reading(layout.name, None, tuple(findings), seen)
    keys = Keys(seen.judged, "dflash")
    draft = _read(keys, layout)
    return Reading(layout.name, draft, (*findings, *seen.told(keys.findings)), seen)


def _describe(file: GGUFFile, architecture: str) -> str:
    kind = file.metadata.get("general.type", "model")
    name = file.metadata.get("general.name")
    called = f" ({name})" if isinstance(name, str) and name else ""
    if kind != "model" or not file.tensors:
        return f"{file.path} is no draft: its general.type is {kind} and its architecture {architecture}{called}."
    return (
        f"{file.path} is a complete {architecture} model{called}, no DSpark draft: its architecture is neither"
        " dflash nor dspark; if it is the target, give the draft instead."
    )


def _read(keys: Keys, layout: Layout) -> Draft | None:
    file = keys.file
    defaults = layout.prefix == "dflash."  # of a loader that runs such a file
    kind = _kind(file)
    v4 = has_stages(keys)
    sizes = _sizes(keys, v4)
    stages = read_stages(keys) if v4 else None
    eps = keys.number("attention.layer_norm_rms_epsilon", ValueType.FLOAT32, required=True)
    taps = keys.array(f"{keys.prefix}.target_layers", INTEGERS, required=True)
    mask = keys.full("tokenizer.ggml.mask_token_id", ValueType.UINT32, required=True)
    block_size = _block_size(keys, kind)
    anchor = _anchor(keys, kind, tell=defaults)
    confidence = _confidence(keys, kind, tell=defaults)
    layers = read_layers(keys, kind, stages=v4)
    if sizes is None or taps is None or block_size is None or eps is None or mask is None or (v4 and stages is None):
        return None
    if kind == "dflash2" and layers["dflash2"] is None:
        return None
    w1, d2t = file.tensor("markov_w1.weight"), file.tensor("d2t")
    vocab_size = _vocab_size(keys)
    rank = w1.shape[0] if w1 else 0
    draft = Draft(
        kind=kind,
        backbone=keys.full("dspark.backbone", ValueType.STRING) or ("deepseek4" if v4 else ""),
        block_size=block_size,
        sample_from_anchor=anchor,
        target_layers=taps,
        mask_token_id=mask,
        markov_rank=rank,
        markov_head_type=keys.full("dspark.markov_head_type", ValueType.STRING) or ("vanilla" if rank else "none"),
        has_confidence_head=confidence,
        vocab_size=vocab_size,
        draft_vocab_size=d2t.shape[0] if d2t else vocab_size,
        hidden_size=sizes["embedding_length"],
        intermediate_size=sizes["feed_forward_length"],
        n_layer=sizes["block_count"],
        n_head=sizes["head_count"],
        n_head_kv=sizes["head_count_kv"],
        head_dim=sizes["key_length"],
        context_length=sizes["context_length"],
        rms_norm_eps=eps,
        rope=read_rope(keys, sizes["key_length"], stages=v4),
        has_token_embd=file.tensor("token_embd.weight") is not None,
        has_output=file.tensor("output.weight") is not None,
        has_sinks=any(SINKS.fullmatch(tensor.name) for tensor in file.tensors),
        has_mask_row=keys.full("dspark.mask_row", ValueType.BOOL) or False,
        deepseek4=stages,
        **layers,
    )
    draft = draft if draft.backbone else replace(draft, backbone=layers_like(draft))
    _compare_meaning(keys, draft)
    _compare_backbone(keys, draft, v4)
    _compare_mask_row(keys, draft)
    return draft


def _sizes(keys: Keys, v4: bool) -> dict[str, int] | None:
    """The network's sizes, or None if one is missing."""
    found = {name: keys.size(name) for name in ("block_count", "context_length", "embedding_length")}
    found["feed_forward_length"] = keys.size("expert_feed_forward_length" if v4 else "feed_forward_length")
    heads = found["head_count"] = keys.size("attention.head_count")
    stated = f"{keys.prefix}.attention.head_count_kv" in keys.file.metadata
    found["head_count_kv"] = keys.size("attention.head_count_kv") if stated else heads
    sizes = {name: value for name, value in found.items() if value is not None}
    if len(sizes) < len(found):
        return None
    key_length = keys.number("attention.key_length", ValueType.UINT32)
    default = sizes["embedding_length"] // max(sizes["head_count"], 1)
    return sizes | {"key_length": default if key_length is None else key_length}


def _kind(file: GGUFFile) -> Kind:
    if file.tensor("markov_w1.weight"):
        return "dspark"
    return "dflash2" if file.tensor("selector_hidden.weight") else "dflash"


def _block_size(keys: Keys, kind: Kind) -> int | None:
    """The number that llama.cpp takes for a plain DFlash draft without one; it runs no other without."""
    value: int | None = keys.number("block_size", ValueType.UINT32, required=kind != "dflash")
    if value is None and kind == "dflash":
        message = f"the key is missing; llama.cpp takes {DEFAULT_BLOCK_SIZE}, which need not be what was trained."
        keys.findings.append(warning("key-default", f"{keys.prefix}.block_size", message, "convert the draft again"))
        return DEFAULT_BLOCK_SIZE
    return value


def _anchor(keys: Keys, kind: Kind, *, tell: bool) -> bool:
    """Only DSpark drafts can predict from slot 0; layouts without the key know no others."""
    value: bool | None = keys.number("sample_from_anchor", ValueType.BOOL)
    if value is not None:
        return value
    if kind == "dspark" and tell:
        message = "the key is missing; llama.cpp takes true: the first draft token is predicted at the anchor."
        fix = "convert the draft again, so that the file says which it is"
        keys.findings.append(warning("key-default", f"{keys.prefix}.sample_from_anchor", message, fix))
    return kind == "dspark"


def _confidence(keys: Keys, kind: Kind, *, tell: bool) -> bool:
    held = keys.file.tensor("conf_proj.weight") is not None
    value: bool | None = keys.number("has_confidence_head", ValueType.BOOL)
    if value is None and kind == "dspark" and tell and not held:
        message = "the key is missing; llama.cpp takes true, and --spec-draft-p-min reads what is not there."
        keys.findings.append(
            warning("key-default", f"{keys.prefix}.has_confidence_head", message, "convert the draft again")
        )
    return held if value is None else value


def _vocab_size(keys: Keys) -> int:
    """Rows of the tables over the target's vocabulary, else the token list's length."""
    for name in ("markov_w1.weight", "token_embd.weight", "selector_predecessor.weight"):
        tensor = keys.file.tensor(name)
        if tensor and len(tensor.shape) > 1:
            return tensor.shape[1]
    tokens = keys.file.metadata.entries.get("tokenizer.ggml.tokens")
    if tokens is not None and tokens.array is not None:
        return tokens.array.count
    return keys.number("vocab_size", ValueType.UINT32) or 0


def _compare_meaning(keys: Keys, draft: Draft) -> None:
    for key, attribute in MEANING.items():
        if key not in keys.file.metadata:
            continue
        stated, meant = _plain(keys.file.metadata[key]), getattr(draft, attribute)
        meant = list(meant) if isinstance(meant, tuple) else meant
        if stated != meant:
            message = f"the file says {shown(stated)} here, but what llama.cpp reads says {shown(meant)}."
            keys.findings.append(error("meaning-disagrees", key, message, "convert the draft again"))


def _compare_backbone(keys: Keys, draft: Draft, v4: bool) -> None:
    """llama.cpp builds a DeepSeek-V4 draft if there are hyper-connections, and one like Qwen3's otherwise."""
    if draft.backbone.startswith("deepseek4") != v4:
        built = "a DeepSeek-V4 draft (hyper_connection.count)" if v4 else "a draft without hyper-connections"
        message = f"the file says {shown(draft.backbone)} here, but what llama.cpp reads makes {built}."
        keys.findings.append(error("meaning-disagrees", "dspark.backbone", message, "convert the draft again"))


def _compare_mask_row(keys: Keys, draft: Draft) -> None:
    """A row of its own stands in the draft's embeddings, or nowhere."""
    if draft.has_mask_row and not draft.has_token_embd:
        message = "the file says that its embeddings have a row of the draft's own for the mask token, but holds none."
        keys.findings.append(error("meaning-disagrees", "dspark.mask_row", message, "convert the draft again"))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
