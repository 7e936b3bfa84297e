"""Plan: every key/value and tensor job of a conversion, and everything that is wrong with it.

Making a plan reads headers only. Dry run, JSON, inspection of a directory and the writer are all
views of it, so what they say cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dspark_convert import metadata
from dspark_convert.block_limit import judge_block
from dspark_convert.draft import Draft
from dspark_convert.errors import EnvironmentFault, InputError
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.foreign.jobs import jobs_in_dialect
from dspark_convert.foreign.keys import in_dialect, judge_dialect
from dspark_convert.ggufio.types import KV
from dspark_convert.jobs import Source, TensorJob
from dspark_convert.mask_row import find_tables, judge_mask_row, make_table_jobs
from dspark_convert.options import Dialect, Options
from dspark_convert.pair.judge import judge_pair, judge_taps
from dspark_convert.shared import EMBEDDINGS, HEAD, TABLES, judge_shared
from dspark_convert.source.checkpoint import Checkpoint, open_checkpoint
from dspark_convert.source.classify import is_full_model
from dspark_convert.source.safetensors_header import TensorRef
from dspark_convert.specs.formula import FormulaError
from dspark_convert.specs.load import Spec, flat_name
from dspark_convert.specs.mapping import check_tensors, flatten, make_jobs
from dspark_convert.specs.match import choose_tensors, match_spec
from dspark_convert.specs.normalise import make_draft, resolve
from dspark_convert.specs.places import Place
from dspark_convert.specs.policy import Types, judge_types, label, main_type, plain_type
from dspark_convert.specs.remarks import judge_draft
from dspark_convert.target import Target


@dataclass(frozen=True)
class Plan:
    """``draft`` is None and ``metadata`` and ``tensors`` are empty where errors leave no plan.

    ``label`` says in short of which type the weights are, as in the file's name.
    """

    dialect: Dialect
    draft: Draft | None
    label: str
    metadata: tuple[KV, ...]
    tensors: tuple[TensorJob, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "error")


def plan_for_directory(root: Path, target: Target | None = None, options: Options | None = None) -> Plan:
    """Plan the conversion of the checkpoint in ``root``; as ``plan_for_checkpoint``."""
    return plan_for_checkpoint(open_checkpoint(root, needs=choose_tensors), target, options)


def require_known(root: Path) -> None:
    """Raise InputError, which says what the checkpoint in ``root`` is instead, unless its family is known."""
    _match(open_checkpoint(root, needs=choose_tensors), None)


def plan_for_checkpoint(checkpoint: Checkpoint, target: Target | None = None, options: Options | None = None) -> Plan:
    """Plan the conversion of an opened checkpoint.

    Without a target the plan holds no tokenizer. Raises UsageError or InputError where there is
    nothing to plan (no checkpoint, another family), and EnvironmentFault where the family's own
    table is at fault; all other problems are findings.
    """
    spec = _match(checkpoint, target)
    try:
        return _plan(spec, checkpoint, target, options or Options())
    except FormulaError as e:  # one of names that have values, so no error was found that explains it
        raise EnvironmentFault(f"{spec.file}: for this checkpoint {e}.") from None


def _plan(spec: Spec, checkpoint: Checkpoint, target: Target | None, options: Options) -> Plan:
    flat, duplicates = flatten(spec, checkpoint.tensors)
    findings = [error("family-unsupported", spec.name, f"it cannot be converted: {r}.") for r in spec.unsupported]
    findings += [*checkpoint.findings, *duplicates]

    values = resolve(spec, checkpoint.config, {n: r.shape for n, r in flat.items()}, options.overrides)
    draft = make_draft(spec, values)
    places, problems = check_tensors(
        spec, values.known, flat, checkpoint.config, complete=checkpoint.complete, fetched=checkpoint.fetched
    )
    findings += [*values.findings, *problems]
    tables: dict[str, Source] = {}
    if checkpoint.mask_embedding is None:
        written, notes = _shared(spec, checkpoint, places, flat, values.known.get("mask_token_id"), target, options)
    else:
        own = {place.gguf: place.read[0] for place in places if place.gguf in TABLES and place.read}
        written = [place for place in places if place.gguf not in TABLES]
        tables, notes = find_tables(own, values.known, target)
        notes += judge_mask_row(checkpoint.mask_embedding, values.known)
    findings += notes
    tokenizer: tuple[KV, ...] = ()
    if draft is not None:
        draft = _with_shared(draft, {place.gguf for place in written} | tables.keys())
        draft = replace(draft, has_mask_row=checkpoint.mask_embedding is not None)
        findings += judge_draft(draft, checkpoint.config) + _pair(draft, target, values.known)
        findings += judge_dialect(options.dialect, draft, included=options.shared_tensors == "include")
    if target is not None and "vocab_size" in values.known:
        # Where the two differ there is an error already; a draft's wrong size could take minutes to pad to.
        vocab_size = target.vocab_size or values.known["vocab_size"]
        tokenizer = tokenizer_kvs(target, vocab_size, options, findings)
    free = [place for place in places if place.rule.role != "fixed"]
    plain = plain_type(source for place in free for source in place.read)
    types = Types(options.outtype, options.experts, plain, options.dequantize)
    plan = Plan(options.dialect, draft, "", (), (), tuple(findings))
    if draft is None or any(f.rule != "family-unsupported" for f in plan.errors):
        return plan
    made = make_jobs(spec, values.known, written, flat, types)
    if checkpoint.mask_embedding is not None:
        with_mask, told = make_table_jobs(checkpoint.mask_embedding, tables, types, draft.mask_token_id)
        made = [*(("head", job) for job in with_mask), *made]
        findings.append(told)
    jobs = [job for _, job in made]
    main = main_type(made)
    kvs = metadata.metadata(draft, checkpoint.provenance, target, main, tokenizer)
    findings += judge_types(types, made)
    findings += judge_block(draft, {job.name for job in jobs})
    plan = Plan(options.dialect, draft, label(types, made), kvs, tuple(jobs), tuple(findings))
    return in_words_of(options.dialect, plan)


def in_words_of(dialect: Dialect, plan: Plan) -> Plan:
    """``plan``, which is in mainline's words, in those of ``dialect``."""
    assert plan.draft is not None  # noqa: S101 - there is something to write
    kvs = in_dialect(dialect, plan.draft, plan.metadata)
    jobs, told = jobs_in_dialect(dialect, plan.draft, plan.tensors)
    return replace(plan, metadata=tuple(kvs), tensors=tuple(jobs), findings=(*plan.findings, *told))


def _match(checkpoint: Checkpoint, target: Target | None) -> Spec:
    try:
        return match_spec(checkpoint.config, checkpoint.names)
    except InputError as e:
        names = {flat_name(name) for name in checkpoint.names}
        if not checkpoint.complete and not (checkpoint.indexed and names):
            # Most likely the reason why the checkpoint looks like nothing that is known.
            message = str(e) if names else f"no tensor of {checkpoint.root} could be read."
            raise InputError(message, findings=checkpoint.findings) from None
        if target is None and is_full_model(names):
            raise InputError(f"{e} Is {checkpoint.root} the target? Give the draft instead.") from None
        raise


def _shared(
    spec: Spec,
    checkpoint: Checkpoint,
    places: list[Place],
    flat: Mapping[str, TensorRef],
    mask_token_id: int | None,
    target: Target | None,
    options: Options,
) -> tuple[list[Place], list[Finding]]:
    """The places to write once the choice about the target's tensors is applied, and its findings."""
    shared = [place for place in places if place.shared]
    include = options.shared_tensors == "include"
    tied = checkpoint.config.get("tie_word_embeddings") is True
    findings: list[Finding] = []
    if checkpoint.complete and target is not None:
        judge = partial(judge_shared, target=target, included=include, read=checkpoint.rows)
        for place in shared:
            head = place.gguf == HEAD
            ours = flat[place.source]
            findings += judge(ours, head=head, mask_token_id=mask_token_id)
            if tied and len(shared) == 1 and not head and not target.tied:  # this table is the draft's head too
                findings += judge(ours, head=True, mask_token_id=None)
    if not include:
        saved = sum(flat[place.source].nbytes for place in shared)
        if shared:
            names = " and ".join(place.source for place in shared)
            are = "are" if len(shared) > 1 else "is"
            message = f"{names} ({saved / 1e6:,.1f} MB) {are} borrowed from the target at run time and not written."
            if not spec.within:
                findings.append(info("shared-omitted", names, message))
            else:  # why would a draft inside its target carry them, if they were the target's?
                alone = f"only {names} of the two is there: " if len(shared) == 1 else ""
                fix = "see that they are the target's, or write them: --shared-tensors include"
                findings.append(warning("shared-omitted", names, alone + message, fix))
        return [place for place in places if not place.shared], findings
    names = ", ".join(place.source for place in places if place.gguf in TABLES) or "neither"
    held = {place.gguf for place in places} & set(TABLES)
    if held == {EMBEDDINGS} and target is not None and target.tied:
        message = "the embeddings serve as the head too, as in the target; llama.cpp before b10434 refuses such a file."
        findings.append(warning("token-embd-alone", names, message))
    elif checkpoint.complete and held != set(TABLES):
        message = f"embeddings and head must be written both or neither; the checkpoint holds {names}."
        if not held:
            message = "the checkpoint has no embeddings and no head that could be written."
        findings.append(error("shared-incomplete", names, message, "use --shared-tensors omit"))
    return places, findings


def _pair(draft: Draft, target: Target | None, known: Mapping[str, Any]) -> list[Finding]:
    trained = known.get("num_target_layers", 0)
    findings = judge_taps(draft, target, trained)
    return findings + (judge_pair(draft, target, trained) if target is not None else [])


def tokenizer_kvs(target: Target, vocab_size: int, options: Options, findings: list[Finding]) -> tuple[KV, ...]:
    """The target's ``tokenizer.*`` key/values; what is wrong with them goes into ``findings``."""
    from dspark_convert import tokenizer

    try:
        if target.is_gguf:
            result = tokenizer.from_gguf(target.path, chat_template=options.chat_template)
        else:
            result = tokenizer.from_directory(
                target.path, vocab_size, pre=options.tokenizer_pre, chat_template=options.chat_template
            )
    except InputError as e:
        # Told together with everything else that is wrong.
        findings.append(error("tokenizer", target.path.name, str(e)))
        findings += e.findings
        return ()
    findings += result.findings
    return result.kvs


def _with_shared(draft: Draft, names: set[str]) -> Draft:
    return replace(draft, has_token_embd=EMBEDDINGS in names, has_output=HEAD in names)


def refuse(plan: Plan, *, strict: bool) -> None:
    """Raise InputError carrying all findings if the plan has errors, or with ``strict`` warnings."""
    bad = [f for f in plan.findings if f.severity == "error" or (strict and f.severity == "warning")]
    if bad:
        things = "1 problem" if len(bad) == 1 else f"{len(bad)} problems"
        raise InputError(f"nothing was written: {things} found.", findings=plan.findings)
