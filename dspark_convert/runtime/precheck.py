"""Judge both files by their metadata before llama.cpp sees them: what would kill it ends here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import GGUFFile, open_gguf
from dspark_convert.lint import lint
from dspark_convert.pair.fit import judge_file
from dspark_convert.pair.vocabulary import tokenizer_of
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.shape import DraftShape
from dspark_convert.target import open_target_gguf

#: of what is wrong with a file, so much is told; one wrong size misshapes every layer
TOLD_PROBLEMS = 4

#: numbers that say a position where RoPE has sections
M_ROPE_AXES = 4


def precheck(draft_path: Path, target_path: Path) -> tuple[list[Check], DraftShape | None]:
    """The checks "draft" and "pair"; the shape is None if one of them fails.

    Raises InputError or UsageError if a file is not what it has to be at all.
    """
    target = open_target_gguf(target_path)
    with open_gguf(draft_path) as draft_file, open_gguf(target_path) as target_file:
        draft_file.require_sound()
        target_file.require_sound()
        draft, problems = _judge_draft(draft_file)
        if draft is None or problems:
            skipped = Check("pair", "skip", "the draft's own metadata is wrong")
            return [Check("draft", "fail", _sentence(problems)), skipped], None
        checks = [Check("draft", "pass", _summary(draft))]
        findings = judge_file(draft, draft_file.metadata, target, tokenizer_of(target_file.metadata))
        shape = _shape(draft, draft_file)
    if problems := [finding for finding in findings if finding.severity == "error"]:
        return [*checks, Check("pair", "fail", _sentence(problems))], None
    types = "".join(f" ({f.message.rstrip('.')})" for f in findings if f.rule == "target-token-types")
    fits = f"hidden size, {draft.vocab_size:,} tokens and taps fit the {target.architecture} target{types}"
    return [*checks, Check("pair", "pass", fits)], shape


def _judge_draft(file: GGUFFile) -> tuple[Draft | None, list[Finding]]:
    reading = read_draft(file)
    problems = [finding for finding in lint(file, reading) if finding.severity == "error"]
    if reading.dialect != "dflash" and not problems:
        message = "the early DSpark layout, which llama.cpp no longer runs."
        problems.append(error("early-layout", "general.architecture", message))
    return reading.draft, problems


def _shape(draft: Draft, file: GGUFFile) -> DraftShape:
    sections = file.metadata.get("dflash.rope.dimension_sections")
    # llama.cpp tells an anchor-first draft by its Markov head.
    return DraftShape(
        block_size=draft.block_size,
        reads_anchor=draft.kind == "dspark" and draft.sample_from_anchor,
        mask_token_id=draft.mask_token_id,
        causal=draft.causal,
        has_confidence_head=draft.kind == "dspark" and draft.has_confidence_head,
        kind=draft.kind,
        stages=draft.deepseek4 is not None,
        selector_top_k=draft.dflash2.selector_top_k if draft.dflash2 else 0,
        position_axes=M_ROPE_AXES if isinstance(sections, Sequence) and any(sections) else 1,
    )


def _summary(draft: Draft) -> str:
    return (
        f"block size {draft.block_size}, {draft.drafts_per_block} drafts a block, taps {list(draft.target_layers)},"
        f" {_chain(draft)}, mask token {draft.mask_token_id},"
        f" RoPE of {'neighbouring' if draft.rope.style == 'norm' else 'NeoX'} pairs"
    )


def _chain(draft: Draft) -> str:
    """What makes a token of the block depend on the one before it."""
    if draft.dflash2:
        return f"selector of rank {draft.dflash2.selector_rank} over {draft.dflash2.selector_top_k} candidates"
    return f"Markov rank {draft.markov_rank}" if draft.markov_rank else "no Markov head"


def _sentence(problems: Sequence[Finding]) -> str:
    told = [f"{finding.where}: {finding.message.rstrip('.')}" for finding in problems[:TOLD_PROBLEMS]]
    if more := len(problems) - len(told):
        told.append(f"and {more} more, which dspark-inspect lists")
    return "; ".join(told) + "."
