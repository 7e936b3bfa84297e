"""Does this draft fit this target? The checks that need only two headers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isclose

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.ggufio.types import MAX_LAYERS
from dspark_convert.pair.llama import is_tappable, offered_inputs, plain_name
from dspark_convert.target import Target

#: of a list of taps, so many are told
TOLD_TAPS = 32


def judge_pair(draft: Draft, target: Target, trained_layers: int) -> list[Finding]:
    """Findings about sizes and taps; ``trained_layers`` is the config's own count, 0 if it has none."""
    where = target.called
    another = "give the target that the draft was trained for"
    findings = []
    if target.hidden_size is not None and target.hidden_size != draft.hidden_size:
        message = f"the draft reads hidden states of {draft.hidden_size}, but {where} has {target.hidden_size}."
        findings.append(error("target-hidden-size", "hidden_size", message, another))
    if target.vocab_size is not None and target.vocab_size != draft.vocab_size:
        head = "" if draft.has_output else ", whose head it borrows"
        message = f"the draft has {draft.vocab_size} tokens, but {where} has {target.vocab_size}{head}."
        findings.append(error("target-vocabulary", "vocab_size", message, another))
    if None not in (target.table_rows, target.vocab_size) and target.table_rows != target.vocab_size:
        message = f"{where} has {target.vocab_size} tokens and embeddings of {target.table_rows} rows."
        fix = "convert the target again: llama.cpp loads no such file"
        findings.append(error("target-table-rows", "token_embd.weight", message, fix))
    if target.n_layer is not None and trained_layers and target.n_layer != trained_layers:
        message = f"the draft was trained for a target of {trained_layers} layers, but {where} has {target.n_layer}."
        findings.append(error("target-layers", "num_target_layers", message, another))
    if target.rope_theta is not None and not isclose(target.rope_theta, draft.rope.freq_base, rel_tol=1e-6):
        ours, theirs = f"{draft.rope.freq_base:,.10g}", f"{target.rope_theta:,.10g}"
        message = f"the draft rotates with base {ours}, but {where} with {theirs}."
        # Drafts of the target's own kind begin as its config; others choose their base.
        alike = plain_name(target.architecture).startswith(draft.backbone) and not draft.sliding_window
        tell = warning if alike and draft.rope.scaling is None else info
        findings.append(tell("target-rope-base", "rope_theta", message, "see that the config was not edited"))
    for damage in target.damage:
        message = f"{where} is damaged: {damage.message}"
        findings.append(warning("target-damaged", where, message, "fetch it again before running it"))
    if not is_tappable(target.architecture):
        message = f"no llama.cpp seen so far hands out layer inputs of {target.architecture}, which every tap needs."
        findings.append(
            warning("target-untappable", "target_layers", message, "run dspark-validate before relying on it")
        )
    findings += [*_judge_stages(draft, target), *target.limits]
    if target.transforms and not draft.has_token_embd:
        message = f"{where} stores its embeddings transformed ({target.transforms[0]}), and the draft borrows them."
        findings.append(
            warning("target-transformed", where, message, "write the draft's own: --shared-tensors include")
        )
    return findings


def _judge_stages(draft: Draft, target: Target) -> Iterator[Finding]:
    """A DeepSeek-V4 draft reads residual streams that only a DeepSeek-V4 has."""
    if draft.deepseek4 is None:
        return
    where, own = target.called, draft.deepseek4.hyper_connections
    fix = "give the DeepSeek-V4 that the stages belong to"
    if not plain_name(target.architecture).startswith("deepseekv4") and target.architecture != "deepseek4":
        message = f"the draft consists of DeepSeek-V4 stages, but {where} is a {target.architecture}."
        yield error("target-not-deepseek4", "general.architecture", message, fix)
    elif target.hyper_connections is not None and target.hyper_connections != own:
        message = f"the draft has {own} hyper-connections, but {where} has {target.hyper_connections}."
        yield error("target-hyper-connections", "hyper_connection.count", message, fix)


def judge_tables(draft: Draft, target: Target) -> list[Finding]:
    """One of the two shared tables alone serves only where the target's two are one."""
    if not draft.has_token_embd or draft.has_output or target.tied:
        return []
    message = (
        "the draft has this table but no output.weight, and the target's two tables differ: some llama.cpp builds"
        " then use the wrong head; it needs both or neither."
    )
    fix = "convert it again, with --shared-tensors omit or include"
    return [error("token-embd-alone", "token_embd.weight", message, fix)]


def judge_order(taps: Sequence[int], where: str, fix: str) -> list[Finding]:
    """What is odd about a list of taps by itself: no target has such a layer, or the order, in which trainers write
    each layer once, ascending."""
    told = list(taps[:TOLD_TAPS])
    if beyond := [tap for tap in taps if tap > MAX_LAYERS]:
        message = f"target_layers holds {beyond[0]}, but llama.cpp takes no target of more than {MAX_LAYERS} layers."
        return [error("taps-absurd", where, message, fix)]
    if len(set(taps)) != len(taps):
        return [warning("taps-duplicate", where, f"target_layers {told} names a layer twice.", fix)]
    if any(a > b for a, b in pairwise(taps)):
        return [warning("taps-unsorted", where, f"target_layers {told} is not in ascending order.", fix)]
    return []


def judge_taps(draft: Draft, target: Target | None, trained_layers: int) -> list[Finding]:
    """Taps against the target's layer count, from the target or else from the draft's own config.

    Whether what leaves the last layer is handed out depends on the target, so without one it may be.
    """
    layers = target.n_layer if target is not None and target.n_layer is not None else trained_layers
    if not layers:
        return []
    offered = range(layers + 1) if target is None else offered_inputs(target.architecture, layers)
    beyond = [tap for tap in draft.target_layers if tap not in offered]
    if not beyond:
        return []
    message = (
        f"target_layers {list(draft.target_layers)} (layer inputs) holds {beyond[0]}, "
        f"but a {layers}-layer target offers 0 to {offered[-1]}."
    )
    return [error("taps-out-of-range", "target_layer_ids", message, "correct the ids or give the right target")]
