"""Draft and target side by side: a verdict a field, which the findings on the pair decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding
from dspark_convert.pair.judge import judge_pair, judge_tables, judge_taps
from dspark_convert.pair.llama import builds_for, offered_inputs, style_of
from dspark_convert.pair.remarks import judge_remarks, scaling_of, sections_of
from dspark_convert.pair.scales import logits_of
from dspark_convert.pair.vocabulary import Tokenizer, judge_tokens, tokenizer_of
from dspark_convert.target import Target
from dspark_convert.tokenizer.vocabulary import TokenType
from dspark_convert.words import shown

Verdict = Literal["fits", "fits with remarks", "does not fit", "cannot be run", "cannot be judged"]
Mark = Literal["ok", "note", "remark", "misfit", "unknown"]

MARKS: dict[str, Mark] = {"error": "misfit", "warning": "remark", "info": "note"}

#: rules of the plan of a conversion that are on the pair
LIMITS = ("target-compression", "target-indexer")
PAIR_RULES = frozenset(
    "target-hidden-size target-vocabulary target-table-rows target-layers target-rope-base target-damaged"
    " target-untappable target-not-deepseek4 target-hyper-connections target-transformed taps-out-of-range"
    " shared-differs target-embedding-scale target-logits".split()
).union(LIMITS)


@dataclass(frozen=True)
class Field:
    """One line of the comparison; ``rules`` are those of the findings that gave the ``mark``."""

    name: str
    draft: str
    target: str
    mark: Mark
    rules: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "field": self.name,
            "draft": self.draft,
            "target": self.target,
            "verdict": self.mark,
            "rules": list(self.rules),
        }


@dataclass(frozen=True)
class Fit:
    """``findings`` are those on the pair."""

    target: str
    verdict: Verdict
    fields: tuple[Field, ...]
    findings: tuple[Finding, ...]

    @property
    def fits(self) -> bool:
        return self.verdict in ("fits", "fits with remarks")

    def to_json(self) -> dict[str, Any]:
        """The ``pair`` object of ``dspark-inspect --json``; its findings stand with the others."""
        return {
            "target": self.target,
            "verdict": self.verdict,
            "fields": [field.to_json() for field in self.fields],
        }


def judge_file(draft: Draft, metadata: Mapping[str, Any], target: Target, wanted: Tokenizer | None) -> list[Finding]:
    """All findings on a draft GGUF with a target, whose tokenizer is ``wanted``: the same for inspection and before
    a run."""
    trained = metadata.get("dspark.target.block_count", 0)
    return [
        *judge_pair(draft, target, trained if type(trained) is int else 0),
        *judge_taps(draft, target, 0),
        *judge_tables(draft, target),
        *judge_tokens(tokenizer_of(metadata), wanted, target),
        *judge_remarks(draft, metadata, target, wanted, target_names(metadata)),
    ]


def target_names(metadata: Mapping[str, Any]) -> list[str]:
    """What a draft file calls its target."""
    keys = ("dspark.target.name", "general.base_model.0.name", "general.base_model.0.repo_url")
    return [name for key in keys if isinstance(name := metadata.get(key), str) and name]


def compare(
    draft: Draft | None,
    metadata: Mapping[str, Any],
    target: Target,
    findings: Sequence[Finding],
    own: Tokenizer | None,
    wanted: Tokenizer | None,
    lacks: str = "?",
    broken: bool = False,
) -> Fit:
    """The comparison as a table; ``findings`` are all on the pair, ``own`` is the draft's tokenizer, ``lacks``
    what stands in the table where it has none, and ``broken`` whether the draft itself has errors."""
    if draft is None:
        return Fit(target.label or str(target.path), "cannot be judged", (), tuple(findings))
    fields = []
    for name, ours, theirs, rules in _rows(draft, metadata, target, own, wanted, lacks):
        found = [finding for finding in findings if finding.rule in rules]
        worst = next((mark for severity, mark in MARKS.items() if severity in {f.severity for f in found}), None)
        mark: Mark = worst or ("unknown" if "?" in (ours, theirs) else "ok")
        fields.append(Field(name, ours, theirs, mark, tuple(dict.fromkeys(finding.rule for finding in found))))
    severities = {finding.severity for finding in findings}
    verdict: Verdict = "fits"
    if "error" in severities:
        verdict = "does not fit"
    elif broken:
        verdict = "cannot be run"
    elif "warning" in severities:
        verdict = "fits with remarks"
    return Fit(target.label or str(target.path), verdict, tuple(fields), tuple(findings))


def _rows(
    draft: Draft,
    metadata: Mapping[str, Any],
    target: Target,
    own: Tokenizer | None,
    wanted: Tokenizer | None,
    lacks: str,
) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Field, the draft's side, the target's side ("?": not known), the rules that judge it."""
    layers = target.n_layer
    offered = f"0 to {offered_inputs(target.architecture, layers)[-1]} of {layers} layers" if layers else "?"
    taps = ", ".join(map(str, draft.target_layers[:16]))
    names = target_names(metadata)
    tied = {True: "tied to the head", False: "head apart", None: "?"}[target.tied]
    yield "target", shown(names[0]) if names else "?", shown(target.provenance.name), ("target-name", "target-damaged")
    kind = f"{draft.kind}, {draft.backbone}"
    yield "architecture", kind, target.architecture, ("target-untappable", "target-not-deepseek4", *LIMITS)
    yield "hidden size", _count(draft.hidden_size), _count(target.hidden_size), ("target-hidden-size",)
    yield "taps", taps, offered, ("taps-out-of-range", "target-layers", "taps-duplicate", "taps-unsorted")
    rows = "" if target.table_rows in (None, target.vocab_size) else f" ({_count(target.table_rows)} rows)"
    sizes = ("target-vocabulary", "target-table-rows")
    yield "vocabulary size", _count(draft.vocab_size), _count(target.vocab_size) + rows, sizes
    yield (
        "tokens",
        _count_of(own, "tokens", lacks),
        _count_of(wanted, "tokens"),
        ("target-tokens", "target-padding", "target-tokens-unknown"),
    )
    yield "token types", _count_of(own, "types", lacks), _count_of(wanted, "types"), ("target-token-types",)
    yield "merges", _count_of(own, "merges", lacks), _count_of(wanted, "merges"), ("target-merges",)
    yield "tokenizer", _named(own, lacks), _named(wanted), ("target-tokenizer", "target-pre-tokenizer")
    yield "chat template", _template(own, lacks), _template(wanted), ("target-chat-template",)
    yield "mask token", str(draft.mask_token_id), _mask(draft, wanted), ("target-mask-used", "target-mask-range")
    embeddings = "its own" if draft.has_token_embd else "borrowed"
    shared = ("target-quantised", "shared-differs", "target-transformed")
    yield "embeddings", embeddings, _table(target.embeddings_type, target, tied), shared
    if draft.embedding_scale or target.embedding_scale:
        own_scale, their_scale = f"{draft.embedding_scale or 1:.6g}", f"{target.embedding_scale or 1:.6g}"
        yield "embeddings times", own_scale, their_scale, ("target-embedding-scale",)
    head = "its own" if draft.has_output else "its embeddings" if draft.has_token_embd else "borrowed"
    yield "head", head, _table(target.head_type, target, tied), ("token-embd-alone", *shared)
    if logits_of(draft) or logits_of(target):
        yield "logits", logits_of(draft) or "as they are", logits_of(target) or "as they are", ("target-logits",)
    base = "?" if target.rope_theta is None else f"{target.rope_theta:,.10g}"
    yield "RoPE base", f"{draft.rope.freq_base:,.10g}", base, ("target-rope-base",)
    yield "RoPE style", draft.rope.style, style_of(target.architecture) or "?", ("target-rope-style",)
    yield "RoPE scaling", scaling_of(draft) or "none", target.rope_scaling or "none", ("target-rope-scaling",)
    sections = sections_of(metadata)
    yield "M-RoPE", str(sections) if sections else "no", "yes" if target.mrope else "no", ("target-mrope",)
    if draft.deepseek4:
        own_count = str(draft.deepseek4.hyper_connections)
        yield "hyper-connections", own_count, _count(target.hyper_connections), ("target-hyper-connections",)
    yield "context", _count(draft.context_length), _count(target.context_length), ("target-context",)
    whole = draft.has_token_embd and (draft.has_output or target.tied is True)
    yield "self-contained", "yes" if whole else "no: not with -sm tensor", "", ()
    yield "runs in", builds_for(draft), "", ()


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _count_of(tokenizer: Tokenizer | None, what: Literal["tokens", "types", "merges"], lacks: str = "?") -> str:
    items = () if tokenizer is None else getattr(tokenizer, what)
    return f"{len(items):,}" if items else lacks


def _named(tokenizer: Tokenizer | None, lacks: str = "?") -> str:
    return lacks if tokenizer is None or tokenizer.model is None else f"{tokenizer.model}, {tokenizer.pre or 'unnamed'}"


def _template(tokenizer: Tokenizer | None, lacks: str = "?") -> str:
    return lacks if tokenizer is None else "there" if tokenizer.template else "none"


def _table(kind: str | None, target: Target, tied: str) -> str:
    if not target.is_gguf:
        return f"{tied}, a checkpoint in {shown(kind)}" if kind else tied
    return f"{kind}, {tied}" if kind else "?"


def _mask(draft: Draft, wanted: Tokenizer | None) -> str:
    if wanted is None or draft.mask_token_id >= len(wanted.tokens):
        return "?"
    kind = wanted.types[draft.mask_token_id] if len(wanted.types) == len(wanted.tokens) else 0
    named = TokenType(kind).name.lower().replace("_", " ") if kind in set(TokenType) else "of no type"
    return f"{shown(wanted.tokens[draft.mask_token_id])}, {named}"
