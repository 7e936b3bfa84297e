"""Read both files' metadata before llama.cpp does: what would kill it, or mislead it, ends here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_convert.ggufio.reader import GGUFFile, open_gguf
from dspark_convert.pair import TAPPABLE_AT_END
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.shape import DraftShape

#: blocks are a handful of tokens; a size beyond this is damage, and a batch would not hold it
MAX_BLOCK_SIZE = 256
MAX_SIZE = 2**31 - 1


@dataclass
class Header:
    """One file's metadata, and what is wrong with it so far (sentences without the file's name)."""

    file: GGUFFile
    problems: list[str] = field(default_factory=list)

    @property
    def architecture(self) -> str:
        return str(self.file.metadata.get("general.architecture", ""))

    def number(self, key: str, low: int, high: int = MAX_SIZE) -> int | None:
        """The integer ``key`` of this architecture, or None after noting why it cannot be used."""
        key = f"{self.architecture}.{key}"
        return self.plain_number(key, low, high)

    def plain_number(self, key: str, low: int, high: int = MAX_SIZE) -> int | None:
        value = self.file.metadata.get(key)
        if value is None:
            self.problems.append(f"{key} is missing")
        elif isinstance(value, bool) or not isinstance(value, int):
            self.problems.append(f"{key} is no single integer")
        elif not low <= value <= high:
            self.problems.append(f"{key} is {value}, but has to be {low} to {high}")
        else:
            return value
        return None

    def flag(self, key: str, default: bool) -> bool:
        """The boolean ``key`` of this architecture; ``default`` is what llama.cpp takes if it is absent."""
        value = self.file.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, bool):
            return value
        self.problems.append(f"{self.architecture}.{key} is no boolean")
        return default

    def shape(self, tensor: str) -> tuple[int, ...] | None:
        found = self.file.tensor(tensor)
        return found.shape if found else None

    @property
    def tokens(self) -> Sequence[str]:
        value: Any = self.file.metadata.get("tokenizer.ggml.tokens", ())
        return value if isinstance(value, Sequence) else ()


def precheck(draft: Path, target: Path) -> tuple[list[Check], DraftShape | None]:
    """The checks "draft" and "pair"; the shape is None if one of them fails.

    Raises InputError if a file cannot be read as GGUF at all.
    """
    with open_gguf(draft) as draft_file, open_gguf(target) as target_file:
        draft_file.require_sound()
        target_file.require_sound()
        ours, theirs = Header(draft_file), Header(target_file)
        if problem := _roles(ours, theirs):
            ours.problems.append(problem)
            shape = None
        else:
            shape = _judge_draft(ours)
            pair = _judge_pair(ours, theirs)
        if shape is None or ours.problems:
            skipped = Check("pair", "skip", "the draft's own metadata is wrong")
            return [Check("draft", "fail", _sentence(ours.problems)), skipped], None
        summary = (
            f"block {shape.block_size}, {shape.drafts_per_block} drafts a block,"
            f" taps {list(ours.file.metadata['dflash.target_layers'])}, mask token {shape.mask_token_id}"
        )
        checks = [Check("draft", "pass", summary)]
        if pair:
            return [*checks, Check("pair", "fail", _sentence(pair))], None
        detail = f"hidden size, {len(ours.tokens):,} tokens and taps fit the {theirs.architecture} target"
        return [*checks, Check("pair", "pass", detail)], shape


def _sentence(problems: Sequence[str]) -> str:
    return "; ".join(problems) + "."


def _roles(draft: Header, target: Header) -> str:
    """Why these two files cannot be a draft and its target, or ""."""
    kinds = (draft.architecture, target.architecture)
    if kinds[0] == "dspark":
        return (
            "this is the early dspark layout, which llama.cpp no longer runs; convert the checkpoint again"
            " with --dialect dflash"
        )
    if kinds[0] != "dflash":
        swapped = "; the two files look swapped" if kinds[1] == "dflash" else ""
        return f"general.architecture is {kinds[0]!r}, but a draft has 'dflash'{swapped}"
    if kinds[1] in ("dflash", "dspark"):
        return "the target is itself a draft"
    return ""


def _judge_draft(draft: Header) -> DraftShape | None:
    """Everything that the draft's file says about itself; problems are noted in ``draft``."""
    block_size = draft.number("block_size", 1, MAX_BLOCK_SIZE)
    hidden = draft.number("embedding_length", 1)
    draft.number("block_count", 1)
    _judge_attention(draft)
    mask = draft.plain_number("tokenizer.ggml.mask_token_id", 0, max(len(draft.tokens) - 1, 0))
    anchor_first = draft.flag("sample_from_anchor", True)
    causal = draft.flag("attention.causal", False)
    has_markov = draft.shape("markov_w1.weight") is not None
    _judge_tensors(draft, hidden)
    has_confidence = _judge_confidence(draft, hidden)
    if draft.shape("selector_hidden.weight") is not None:
        draft.problems.append("this is a DFlash2 draft, whose candidate selector is not run here yet")
    if any(draft.file.metadata.get("dflash.rope.dimension_sections", ())):
        draft.problems.append("M-RoPE drafts (dflash.rope.dimension_sections) are not run here yet")
    if block_size is None or mask is None:
        return None
    shape = DraftShape(block_size, has_markov and anchor_first, mask, causal, has_confidence)
    if shape.drafts_per_block < 1:
        draft.problems.append("dflash.block_size is 1, but slot 0 of this draft proposes nothing")
    return shape


def _judge_attention(draft: Header) -> None:
    heads = draft.number("attention.head_count", 1)
    kv_heads = draft.number("attention.head_count_kv", 1)
    if heads and kv_heads and heads % kv_heads:
        draft.problems.append(f"{heads} attention heads cannot share {kv_heads} key/value heads")
    for key in ("attention.key_length", "attention.value_length"):
        if f"dflash.{key}" in draft.file.metadata:
            draft.number(key, 1)


def _judge_tensors(draft: Header, hidden: int | None) -> None:
    taps: Any = draft.file.metadata.get("dflash.target_layers", ())
    if not isinstance(taps, Sequence) or isinstance(taps, str) or not taps:
        draft.problems.append("dflash.target_layers is missing or names no layer")
        return
    fc = draft.shape("fc.weight")
    if fc is None:
        draft.problems.append("the tensor fc.weight is missing")
    elif hidden and fc != (len(taps) * hidden, hidden):
        wanted = [len(taps) * hidden, hidden]
        draft.problems.append(f"fc.weight is {list(fc)}, but {len(taps)} taps of {hidden} need {wanted}")
    markov = draft.shape("markov_w1.weight")
    if markov is not None and len(draft.tokens) not in markov[1:]:
        draft.problems.append(f"markov_w1.weight is {list(markov)}, but there are {len(draft.tokens)} tokens")


def _judge_confidence(draft: Header, hidden: int | None) -> bool:
    """Whether there is a confidence head to read; llama.cpp takes the flag as true if it is absent."""
    markov, found = draft.shape("markov_w1.weight"), draft.shape("conf_proj.weight")
    if markov is None:
        return False
    if found is None:
        if draft.flag("has_confidence_head", True):
            draft.problems.append(
                "dflash.has_confidence_head is true or absent, but the tensor conf_proj.weight is missing"
            )
        return False
    if hidden and found[0] != hidden + markov[0]:
        draft.problems.append(f"conf_proj.weight is {list(found)}, but has to be {[hidden + markov[0], 1]}")
    return True


def _judge_pair(draft: Header, target: Header) -> list[str]:
    hidden = draft.file.metadata.get("dflash.embedding_length")
    theirs = target.number("embedding_length", 1)
    layers = target.number("block_count", 1)
    problems = target.problems
    if theirs and theirs != hidden:
        problems.append(f"the draft's hidden size is {hidden}, the target's {theirs}")
    problems += _compare_tokens(draft.tokens, target.tokens)
    if layers:
        last = layers if target.architecture.replace("-", "").replace("_", "") in TAPPABLE_AT_END else layers - 1
        taps: Any = draft.file.metadata.get("dflash.target_layers", ())
        problems += [
            f"the draft taps layer input {tap!r}, but this {target.architecture} target offers 0 to {last}"
            for tap in taps
            if not isinstance(tap, int) or not 0 <= tap <= last
        ]
    embedding, head = draft.shape("token_embd.weight"), draft.shape("output.weight")
    if embedding and not head and target.shape("output.weight"):
        problems.append(
            "the draft has token_embd.weight but no output.weight, which some llama.cpp builds refuse and others"
            " take for a tied head: it needs both or neither"
        )
    return problems


def _compare_tokens(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    if len(ours) != len(theirs):
        return [f"the draft's vocabulary has {len(ours):,} tokens, the target's {len(theirs):,}"]
    different = [index for index, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    if not different:
        return []
    first = different[0]
    return [
        f"{len(different):,} tokens of the vocabularies differ, the first is {first}: {ours[first]!r} in the draft,"
        f" {theirs[first]!r} in the target"
    ]
