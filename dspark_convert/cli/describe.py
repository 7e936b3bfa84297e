"""A draft's meaning in words: the fields that dspark-inspect shows first."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from dspark_convert.cli.layers import attention, parts, rotation, scales
from dspark_convert.cli.stages import stage_fields
from dspark_convert.cli.text import human_bytes, safe
from dspark_convert.draft import KINDS, Draft
from dspark_convert.ggufio.layouts import layout_named, mainline_name
from dspark_convert.inspection import Inspection
from dspark_convert.pair.llama import builds_for, spec_type

#: errors that a file loses when it is ported with its target
PORTED_AWAY = {
    "layout-sizes",
    "legacy-layout",
    "merges-missing",
    "sinks-name",
    "token-duplicate",
    "token-embd-alone",
    "vector-type",
    "vocabulary-lists",
    "vocabulary-missing",
}

#: the selector of a DFlash2 draft
SELECTOR = ("selector_predecessor.weight", "selector_successor.weight", "selector_hidden.weight")

#: stands for the target's file where none was given
MODEL = "TARGET.gguf"

#: characters of a metadata value that are shown
VALUE_WIDTH = 100
#: items of an array that are shown
ARRAY_ITEMS = 8


def meaning_fields(inspection: Inspection) -> list[tuple[str, str]]:
    """Name and text a line, most important first."""
    draft, metadata = inspection.draft, inspection.metadata
    if draft is None:
        return [("layout", inspection.dialect), ("weights", _weights(inspection))]
    fields = [
        ("kind", f"{KINDS[draft.kind]} draft{_for_target(metadata)}, layout {inspection.dialect}"),
        ("block", _block(draft)),
        ("taps", f"the inputs of target layers {', '.join(map(str, draft.target_layers)) or '(none)'}"),
        ("mask token", _mask(draft, metadata)),
        *_heads(inspection, draft),
        ("vocabulary", _vocabulary(draft, metadata)),
        ("network", _network(draft)),
        *(stage_fields(draft, draft.deepseek4) if draft.deepseek4 else ()),
        ("attention", attention(draft)),
        ("RoPE", rotation(draft)),
        *scales(draft),
    ]
    if inspection.kind == "checkpoint" and not inspection.tensors:
        return fields  # errors leave nothing of it planned
    return [
        *fields,
        ("shared tensors", _shared(inspection, draft)),
        ("weights", _weights(inspection)),
        *_memory(inspection),
        *_runs_on(inspection, draft),
        ("made from", _origin(metadata)),
    ]


def next_step(inspection: Inspection, target: str = "") -> tuple[str, str]:
    """A heading, and the command that runs this draft or brings it there; or why there is none."""
    draft, path = inspection.draft, inspection.path
    errors = {finding.rule for finding in inspection.errors}
    if errors - PORTED_AWAY or (draft is None and "layout-sizes" not in errors):
        verb = "run" if inspection.kind == "gguf" else "converted"
        return f"It cannot be {verb} as it is", "see the errors below"
    if inspection.kind == "checkpoint":
        option = "--target-gguf" if target.endswith(".gguf") else "--target-model-dir"
        given = "" if inspection.in_target and not target else f" {option} {_quoted(target or 'TARGET')}"
        return "Convert it with", f"dspark-convert {_quoted(path)}{given}"
    directory = bool(target) and not target.endswith(".gguf")
    if draft is None or errors or not mainline(inspection.dialect):
        given = f"--target-model-dir {_quoted(target)}" if directory else f"--target-gguf {_quoted(target or MODEL)}"
        return "Make a file for mainline llama.cpp with", f"dspark-convert {_quoted(path)} {given}"
    # A directory or a repository says what the draft fits, and llama-server takes neither.
    runs = target if Path(target).is_file() else MODEL
    if "read" in inspection.container:  # on the hub
        name = Path(str(path).rpartition(":")[2]).name
        return "Download it, and run it with", server_line(draft, name, runs)
    return "Run it with", server_line(draft, path, runs)


def server_line(draft: Draft, path: Path | str, target: Path | str = MODEL) -> str:
    """The command that drafts with the file ``path``: the whole trained block, not llama.cpp's default of 3."""
    flags = f"--spec-type {spec_type(draft.kind)} --spec-draft-n-max {draft.drafts_per_block}"
    return f"llama-server -m {_quoted(target)} --spec-draft-model {_quoted(path)} {flags}"


def _quoted(path: Path | str) -> str:
    """``path`` for a shell, on one line whatever its name holds, and never an option."""
    text = str(path)
    return safe(shlex.quote(f"./{text}" if text.startswith("-") else text))


def value_text(value: Any) -> str:
    """A metadata value on one line: long text cut, arrays as their first items and length."""
    if isinstance(value, str):
        return safe(value, VALUE_WIDTH)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return value_text([f"{key} {item}" for key, item in islice(value.items(), ARRAY_ITEMS + 1)])
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        items = ", ".join(safe(str(item), VALUE_WIDTH // ARRAY_ITEMS) for item in value[:ARRAY_ITEMS])
        return f"[{items}]" if len(value) <= ARRAY_ITEMS else f"[{items}, …] ({len(value):,} items)"
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _for_target(metadata: Any) -> str:
    name = metadata.get("dspark.target.name") or metadata.get("general.base_model.0.name")
    return f" for {name}" if isinstance(name, str) and name else ""


def mainline(dialect: str) -> bool:
    """Whether a layout is mainline's, or that with something missing."""
    layout = layout_named(dialect)
    return layout.is_mainline or layout.variant


def _runs_on(inspection: Inspection, draft: Draft) -> list[tuple[str, str]]:
    if not mainline(inspection.dialect):
        return [("runs on", layout_named(inspection.dialect).runs_on)]
    return [] if inspection.errors else [("runs on", builds_for(draft))]


def _block(draft: Draft) -> str:
    first = "the first at the anchor" if draft.sample_from_anchor else "the first at the slot after the anchor"
    return f"{draft.block_size} slots, {draft.drafts_per_block} drafts a round, {first}"


def _mask(draft: Draft, metadata: Any) -> str:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, Sequence) and not isinstance(tokens, str) and draft.mask_token_id < len(tokens):
        return f"{draft.mask_token_id}  {safe(str(tokens[draft.mask_token_id]), VALUE_WIDTH)}"
    return str(draft.mask_token_id)


def _heads(inspection: Inspection, draft: Draft) -> list[tuple[str, str]]:
    if draft.dflash2 is not None:
        return parts(draft.dflash2, _types(inspection, SELECTOR))
    if draft.kind == "dflash":
        return [("heads", "none of its own: the tokens of a block are drafted independently")]
    return [("Markov head", _markov(inspection, draft)), ("confidence head", _confidence(inspection, draft))]


def _markov(inspection: Inspection, draft: Draft) -> str:
    if not draft.markov_rank:
        return "none"
    types = _types(inspection, ("markov_w1.weight", "markov_w2.weight"))
    return f"{draft.markov_head_type}, rank {draft.markov_rank}{types}"


def _confidence(inspection: Inspection, draft: Draft) -> str:
    if not draft.has_confidence_head:
        return "none"
    return f"yes{_types(inspection, ('conf_proj.weight',))}, so that --spec-draft-p-min can end a block early"


def _types(inspection: Inspection, names: tuple[str, ...]) -> str:
    """The types of small tensors, of which engines take different ones; in parentheses."""
    rows = [row for row in inspection.tensors if mainline_name(inspection.dialect, row.name) in names]
    found = dict.fromkeys(row.type for row in rows)
    return f" ({' and '.join(found)})" if found else ""


def _vocabulary(draft: Draft, metadata: Any) -> str:
    text = f"{draft.vocab_size:,} tokens"
    if draft.draft_vocab_size != draft.vocab_size:
        text += f", of which it drafts {draft.draft_vocab_size:,}"
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model is None:
        return f"{text}, no tokenizer (it comes from the target)"
    return f"{text}, tokenizer {model}" + (f", pre-tokenizer {pre}" if pre else "")


def _network(draft: Draft) -> str:
    backbone = "" if draft.backbone == "unknown" else f"{draft.backbone}, "
    layers = "stages" if draft.deepseek4 else "layers"
    width = "experts of" if draft.deepseek4 else "FFN"
    gelu = " with GELU" if draft.hidden_act == "gelu" else ""
    keys = ", keys serve as values" if draft.shared_kv else ""
    return (
        f"{backbone}{draft.n_layer} {layers} of {draft.hidden_size}, {draft.n_head} heads of {draft.head_dim}"
        f" over {draft.n_head_kv}, {width} {draft.intermediate_size}{gelu}{keys}"
    )


def _shared(inspection: Inspection, draft: Draft) -> str:
    if not draft.has_token_embd and not draft.has_output:
        return "embeddings and head are borrowed from the target"
    own = {row.name: row.nbytes for row in inspection.tensors if row.name in ("token_embd.weight", "output.weight")}
    size = human_bytes(sum(own.values()))
    if draft.has_token_embd and draft.has_output:
        return f"embeddings and head are its own ({size})"
    if draft.has_output:
        return f"embeddings are borrowed from the target, the head is its own ({size})"
    return f"embeddings are its own ({size}); llama.cpp uses them as head too"


def _weights(inspection: Inspection) -> str:
    sizes: Counter[str] = Counter()
    for row in inspection.tensors:
        sizes[row.type] += row.nbytes
    if not sizes:
        return "none"
    types = ", ".join(f"{kind} {human_bytes(size)}" for kind, size in sizes.most_common())
    return f"{len(inspection.tensors)} tensors, {human_bytes(sizes.total())}: {types}"


def _memory(inspection: Inspection) -> list[tuple[str, str]]:
    memory = inspection.memory
    if memory is None:
        return []
    text = f"{human_bytes(memory.total)} with {human_bytes(memory.cache)} of keys and values at {memory.context:,}"
    return [("memory", f"{text} positions")]


def _origin(metadata: Any) -> str:
    source = metadata.get("dspark.source") or metadata.get("general.source.huggingface.repository")
    if not source:
        name = metadata.get("general.name")
        return f"not stated; it calls itself {name}" if name else "not stated"
    revision, version = metadata.get("dspark.revision"), metadata.get("dspark.converter_version")
    text = f"{source} at {revision}" if revision else str(source)
    return f"{text}, by dspark-convert {version}" if version else text
