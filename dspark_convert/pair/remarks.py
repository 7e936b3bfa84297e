"""What of a pair works, but other than one might think: mask token, context, M-RoPE, names, rounded tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.pair.llama import style_of
from dspark_convert.pair.scales import judge_scales
from dspark_convert.pair.vocabulary import Tokenizer
from dspark_convert.target import Target
from dspark_convert.tokenizer.vocabulary import TokenType
from dspark_convert.words import shown

#: tables that are stored as trained, or so near to it that no draft notices
PRECISE = ("F32", "F16", "BF16", "Q8_0")


def judge_remarks(
    draft: Draft, metadata: Mapping[str, Any] | None, target: Target, wanted: Tokenizer | None, names: Sequence[str]
) -> Iterator[Finding]:
    """``metadata``: of the draft's file, None where it will be written for this target; ``wanted``: the
    target's tokenizer; ``names``: of the target that the draft names as its own."""
    if wanted is not None and wanted.tokens:
        yield from _mask(draft.mask_token_id, wanted)
    if metadata is not None:
        yield from _sections(draft, metadata, target)
    yield from _context(draft, target)
    yield from _borrowed(draft, target)
    yield from judge_scales(draft, target)
    yield from _name(names, target)


def _mask(mask: int, wanted: Tokenizer) -> Iterator[Finding]:
    """The mask token is trained to mean nothing; a token that the target writes means something."""
    key, fix = "mask_token_id", "check the mask token with the draft's author"
    if mask >= len(wanted.tokens):
        message = f"the mask token is {mask}, but the target's vocabulary ends at {len(wanted.tokens) - 1}."
        yield error("target-mask-range", key, message, fix)
        return
    text = shown(wanted.tokens[mask])
    roles = [role.upper() for role, token in wanted.special.items() if token == mask]
    if roles:
        yield warning("target-mask-used", key, f"the mask token {mask} ({text}) is the target's {roles[0]}.", fix)
    elif len(wanted.types) == len(wanted.tokens) and wanted.types[mask] == TokenType.NORMAL:
        message = f"the mask token {mask} ({text}) is an ordinary token of the target."
        yield warning("target-mask-used", key, message, fix)


def _sections(draft: Draft, metadata: Mapping[str, Any], target: Target) -> Iterator[Finding]:
    architecture = metadata.get("general.architecture")
    if draft.deepseek4 is not None or not isinstance(architecture, str):
        return
    key = f"{architecture}.rope.dimension_sections"
    sections, wanted = sections_of(metadata), [draft.rope.dimension_count // 2, 0, 0, 0]
    fix = "convert the draft again with this target"
    if target.mrope and not sections:
        message = f"{target.called} has M-RoPE, and the draft has no sections for it: images put its positions off."
        yield warning("target-mrope", key, message, fix)
    elif target.mrope and sections != wanted:
        message = f"the draft rotates in sections {sections}; {wanted} make it follow the text axis of the target."
        yield warning("target-mrope", key, message, fix)
    elif sections and not target.mrope:
        message = f"the draft has sections of M-RoPE, {sections}, but {target.called} has none."
        yield warning("target-mrope", key, message, fix)


def sections_of(metadata: Mapping[str, Any]) -> list[int]:
    """The draft's sections of M-RoPE; empty if it has none."""
    value = metadata.get(f"{metadata.get('general.architecture')}.rope.dimension_sections")
    sections = list(value[:4]) if isinstance(value, Sequence) and not isinstance(value, str) else []
    return sections if any(sections) else []


def _context(draft: Draft, target: Target) -> Iterator[Finding]:
    own, wanted = draft.context_length, target.context_length
    if wanted is not None and own < wanted:
        message = f"the draft was made for {own:,} positions, the target for {wanted:,}; behind its own it may fail."
        yield info("target-context", "context_length", message)
    style = style_of(target.architecture)
    if style in ("neox", "norm") and style != draft.rope.style:
        message = (
            f"the draft rotates {draft.rope.style} pairs and llama.cpp this target's as {style}: right only where"
            " the target's converter reordered q and k."
        )
        yield info("target-rope-style", "rope_style", message, "run dspark-validate, which sees it")
    if draft.deepseek4 is None and scaling_of(draft) != target.rope_scaling:
        ours, theirs = scaling_of(draft) or "none", target.rope_scaling or "none"
        message = f"the scaling of the draft's rotation is {shown(ours)}, of the target's {shown(theirs)}."
        yield info("target-rope-scaling", "rope.scaling.type", message)


def scaling_of(draft: Draft) -> str | None:
    """The name of the scaling of a draft's rotation; a proportional one (Gemma4) is no scaling to llama.cpp."""
    kind = (draft.rope.scaling or {}).get("type")
    return None if kind in (None, "proportional") else str(kind)


def _borrowed(draft: Draft, target: Target) -> Iterator[Finding]:
    if not target.is_gguf:
        return
    borrowed = {
        "embeddings": None if draft.has_token_embd else target.embeddings_type,
        "head": None if draft.has_output else target.head_type,
    }
    rounded = [f"{what} ({kind})" for what, kind in borrowed.items() if kind is not None and kind not in PRECISE]
    if rounded:
        message = (
            f"the draft borrows {' and '.join(rounded)} of {target.called}, rounded there as they were not in its"
            " training: it may be accepted a little less."
        )
        fix = "for a draft with tables of its own convert with --shared-tensors include"
        yield info("target-quantised", "output.weight", message, fix)


def _name(names: Sequence[str], target: Target) -> Iterator[Finding]:
    """Nothing else ties a draft to one of two models of the same shape.

    A repository's name was looked up by somebody; another name may be that of a directory on some disk.
    """
    stated = [*((target.provenance.repo,) if target.provenance.repo else ()), *target.other_names]
    own, theirs = ({_plain(name) for name in of} - {""} for of in (names, [*stated, target.provenance.name]))
    if own and stated and not any(a in b or b in a for a in own for b in theirs):
        tell = warning if any("/" in name for name in names) else info
        message = f"the draft was made for {shown(names[0])}, and the target calls itself {shown(stated[0])}."
        yield tell("target-name", "dspark.target.name", message, "see that it is the same model, or made from it")


def _plain(name: str) -> str:
    """Of a name, repository or its address what spellings agree on."""
    return re.sub(r"[^a-z0-9]", "", name.rstrip("/").rsplit("/", 1)[-1].lower())
