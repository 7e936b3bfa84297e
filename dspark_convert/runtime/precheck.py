"""Judge both files by their metadata before llama.cpp sees them: what would kill it ends here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from dspark_convert.draft import Draft
from dspark_convert.errors import InputError
from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.dialects import read_draft
from dspark_convert.ggufio.reader import GGUFFile, open_gguf
from dspark_convert.lint import lint
from dspark_convert.pair import judge_pair, judge_taps
from dspark_convert.runtime.report import Check
from dspark_convert.runtime.shape import DraftShape
from dspark_convert.runtime.target_limits import judge_deepseek4_target
from dspark_convert.target import Target, open_target_gguf
from dspark_convert.words import shown

#: of what is wrong with a file, so much is told; one wrong size misshapes every layer
TOLD_PROBLEMS = 4


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
        _refuse_what_is_not_run(draft, draft_file)
        checks = [Check("draft", "pass", _summary(draft))]
        problems = _judge_pair(draft, target, draft_file, target_file)
        types = _other_types(draft_file, target_file)
    if problems:
        return [*checks, Check("pair", "fail", _sentence(problems))], None
    fits = f"hidden size, {draft.vocab_size:,} tokens and taps fit the {target.architecture} target{types}"
    return [*checks, Check("pair", "pass", fits)], _shape(draft)


def _judge_draft(file: GGUFFile) -> tuple[Draft | None, list[Finding]]:
    reading = read_draft(file)
    problems = [finding for finding in lint(file, reading) if finding.severity == "error"]
    if reading.dialect != "dflash" and not problems:
        message = "the early DSpark layout, which llama.cpp no longer runs."
        problems.append(error("early-layout", "general.architecture", message))
    return reading.draft, problems


def _refuse_what_is_not_run(draft: Draft, file: GGUFFile) -> None:
    if draft.kind == "dflash2":
        raise InputError(f"{file.path} is a DFlash2 draft, whose candidate selector dspark-validate does not run.")
    if any(_items(file, "dflash.rope.dimension_sections")):
        raise InputError(
            f"{file.path} is a draft for a target with M-RoPE (dflash.rope.dimension_sections), which dspark-validate"
            " does not run."
        )


def _shape(draft: Draft) -> DraftShape:
    # llama.cpp tells an anchor-first draft by its Markov head.
    return DraftShape(
        block_size=draft.block_size,
        reads_anchor=draft.kind == "dspark" and draft.sample_from_anchor,
        mask_token_id=draft.mask_token_id,
        causal=draft.causal,
        has_confidence_head=draft.kind == "dspark" and draft.has_confidence_head,
        kind=draft.kind,
    )


def _judge_pair(draft: Draft, target: Target, ours: GGUFFile, theirs: GGUFFile) -> list[Finding]:
    trained = ours.metadata.get("dspark.target.block_count", 0)
    findings = [*judge_pair(draft, target, trained if type(trained) is int else 0), *judge_taps(draft, target, 0)]
    problems = [finding for finding in findings if finding.severity == "error"]
    if draft.has_token_embd and not draft.has_output and not target.tied:
        message = (
            "the draft has this table but no output.weight, and the target's two tables differ: some llama.cpp builds"
            " then use the wrong head; it needs both or neither."
        )
        problems.append(error("token-embd-alone", "token_embd.weight", message))
    if target.architecture == "deepseek4":
        problems += judge_deepseek4_target(theirs)
    return problems + (_compare_tokens(ours, theirs) or _compare_splitting(ours, theirs))


def _compare_tokens(ours: GGUFFile, theirs: GGUFFile) -> list[Finding]:
    """Two vocabularies of one size may still differ in single tokens; other sizes are judged elsewhere."""
    key = "tokenizer.ggml.tokens"
    own, wanted = _items(ours, key), _items(theirs, key)
    if not wanted:
        return [
            error("target-tokens", key, f"the target holds no list of tokens to compare the draft's {len(own):,} with.")
        ]
    different = [(index, a, b) for index, (a, b) in enumerate(zip(own, wanted, strict=False)) if a != b]
    if not different:
        return []
    index, a, b = different[0]
    message = (
        f"{len(different):,} tokens differ, the first is {index}: {shown(a)} in the draft, {shown(b)} in the target."
    )
    return [error("target-tokens", key, message)]


def _other_types(ours: GGUFFile, theirs: GGUFFile) -> str:
    """Said of types that differ, as they do between converters of one model: the draft's own are never read."""
    key = "tokenizer.ggml.token_type"
    a, b = _items(ours, key), _items(theirs, key)
    count = sum(x != y for x, y in zip_longest(a, b))
    return f" ({count:,} token types are not the target's, which changes nothing)" if count else ""


def _items(file: GGUFFile, key: str) -> Sequence[Any]:
    """The list or text under ``key``; what a stranger's file holds there may also be a number."""
    value = file.metadata.get(key)
    return value if isinstance(value, Sequence) else ()


def _compare_splitting(ours: GGUFFile, theirs: GGUFFile) -> list[Finding]:
    """One list of tokens, but two ways to make them of text: the vocabulary is another model's.

    Names of pre-tokenizers and special ids are left out: they differ between converters of one model.
    """
    findings = []
    for key in ("tokenizer.ggml.model", "tokenizer.ggml.merges"):
        a, b = _items(ours, key), _items(theirs, key)
        if a and b and list(a) != list(b):
            findings.append(error("target-tokens", key, "it is not the target's, although the tokens are."))
    return findings


def _summary(draft: Draft) -> str:
    return (
        f"block size {draft.block_size}, {draft.drafts_per_block} drafts a block, taps {list(draft.target_layers)},"
        f" Markov rank {draft.markov_rank}, mask token {draft.mask_token_id}"
    )


def _sentence(problems: Sequence[Finding]) -> str:
    told = [f"{finding.where}: {finding.message.rstrip('.')}" for finding in problems[:TOLD_PROBLEMS]]
    if more := len(problems) - len(told):
        told.append(f"and {more} more, which dspark-inspect lists")
    return "; ".join(told) + "."
