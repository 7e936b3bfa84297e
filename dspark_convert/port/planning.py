"""The plan that makes a draft GGUF of another one: of any layout, other types, or the target's vocabulary.

The old file is read in mainline's words (``ggufio.layouts``), so what its layout says otherwise, such as taps that
count layer outputs, is put right there, once. The plan's header is then read back as the file that it will
be: it has to mean the same draft, and to hold what llama.cpp's loader wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from dspark_convert.findings import Finding, error
from dspark_convert.foreign.keys import judge_dialect
from dspark_convert.ggufio.dialects import Reading, read_draft
from dspark_convert.ggufio.reader import GGUFFile, open_gguf
from dspark_convert.ggufio.types import KV, MAX_LAYERS, GGMLType
from dspark_convert.lint.container import misnamed
from dspark_convert.lint.fixes import AGAIN
from dspark_convert.options import Options
from dspark_convert.pair.fit import judge_file, target_names
from dspark_convert.pair.judge import judge_order
from dspark_convert.pair.vocabulary import tokenizer_of
from dspark_convert.plan import Plan, in_words_of, tokenizer_kvs
from dspark_convert.port.check import read_back
from dspark_convert.port.metadata import judge_keys, own_tokenizer, port_metadata
from dspark_convert.port.tensors import (
    choose_shared,
    fold_scales,
    make_port_jobs,
    make_types,
    read_tensors,
)
from dspark_convert.shared import EMBEDDINGS, HEAD
from dspark_convert.specs.policy import label, main_type
from dspark_convert.target import Target

#: what the reader tells of a layout that is left behind
LEFT_BEHIND = ("legacy-layout", "early-layout", "layout-names")


def plan_for_gguf(path: Path, target: Target | None = None, options: Options | None = None) -> Plan:
    """Plan to port the draft GGUF ``path``, of a split set the first part; without a target it keeps its vocabulary.

    Raises InputError if the file cannot be read or is no draft; all other problems are findings.
    """
    options = options or Options()
    with ExitStack() as stack:
        file = stack.enter_context(open_gguf(path))
        beside = stack.enter_context(open_gguf(target.path)) if target is not None and target.is_gguf else None
        return _plan(file, read_draft(file, beside), target, options, beside)


def target_name(plan: Plan) -> str:
    """What a ported file calls its target."""
    metadata = {kv.key: kv.value for kv in plan.metadata}
    return (target_names(metadata) or [str(metadata["general.name"])])[0].rsplit("/", 1)[-1]


def _plan(file: GGUFFile, reading: Reading, target: Target | None, options: Options, beside: GGUFFile | None) -> Plan:
    """``beside``: the target's open GGUF."""
    findings = [*file.findings, *(f for f in reading.findings if f.rule not in LEFT_BEHIND)]
    old = reading.view.file
    if file.byte_order == "big":
        message = "the file's numbers are big-endian, which are not turned round here."
        findings.append(error("big-endian", file.path.name, message, "port it where it was made, or fetch it again"))
    if reading.draft is not None and not 0 < reading.draft.n_layer <= MAX_LAYERS:
        message = f"block_count is {reading.draft.n_layer}; llama.cpp takes 1 to {MAX_LAYERS}."
        findings.append(error("block-count", "block_count", message, AGAIN))
    if reading.draft is not None:
        order = judge_order(reading.draft.target_layers, "target_layers", AGAIN)
        findings += [finding for finding in order if finding.severity == "error"]
    held, problems = read_tensors(file, zip(file.tensors, (tensor.name for tensor in old.tensors), strict=True))
    findings += [*problems, *judge_keys(old.metadata)]
    plan = Plan(options.dialect, reading.draft, "", (), (), tuple(findings))
    if reading.draft is None or plan.errors:
        return plan
    draft = replace(reading.draft, **options.overrides)
    held, told = choose_shared(held, draft, target, options)
    findings += told
    names = {each.name for each in held}
    draft = replace(draft, has_token_embd=EMBEDDINGS in names, has_output=HEAD in names)
    tokenizer: tuple[KV, ...] = ()
    if target is None:
        tokenizer, told_of_it = own_tokenizer(old.metadata, file.path, options)
        findings += told_of_it
    else:
        tokenizer = tokenizer_kvs(target, target.vocab_size or draft.vocab_size, options, findings)
        wanted = tokenizer_of({kv.key: kv.value for kv in tokenizer})
        findings += judge_file(draft, old.metadata, target, wanted)
    types = make_types(options, held)
    held = fold_scales(types, held)
    jobs, told = make_port_jobs(types, held, draft)
    made = [(each.role, job) for each, job in zip(held, jobs, strict=True)]
    findings += told
    same = all(job.type is each.stored for each, job in zip(held, jobs, strict=True))
    matrices = {job.type for job in jobs if len(job.shape) > 1 and job.shape[1] > 1}
    all_f32 = matrices <= {GGMLType.F32}
    named = misnamed(old.metadata.get("general.file_type"), matrices) in (None, GGMLType.F32)
    kvs = port_metadata(
        old.metadata, file.path, draft, target, tokenizer, main_type(made), same_types=same and named, all_f32=all_f32
    )
    findings += judge_dialect(options.dialect, draft, included=options.shared_tensors == "include")
    plan = replace(plan, draft=draft, label=label(types, made), metadata=kvs, tensors=tuple(jobs))
    plan = replace(plan, findings=tuple(findings))
    if not plan.errors:
        plan = in_words_of(options.dialect, plan)
    if not plan.errors:
        plan = replace(plan, findings=(*plan.findings, *read_back(plan, beside)))
    return replace(plan, findings=_once(plan.findings))


def _once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple({(each.rule, each.where, each.message): each for each in reversed(findings)}.values())[::-1]
