"""What is odd about a draft's meaning by itself, although it can be converted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, error, info, warning
from dspark_convert.pair.judge import judge_order

FIX = "check the config against its training run"

#: llama.cpp counts positions in 32 bits with a sign, and looks so far beyond a window (src/llama-kv-cache.cpp)
POSITIONS, BEYOND = 2**31, 32
#: of the list of positions that it makes room for, as many as a window has, a batch
POSITION_BYTES = 4


def judge_draft(draft: Draft, config: Mapping[str, Any]) -> list[Finding]:
    return [
        *judge_order(draft.target_layers, "target_layer_ids", FIX),
        *judge_window(draft, FIX),
        *_causal(draft),
        *_mask(draft, config),
        *_logits(draft),
        *_zero_head(draft),
    ]


def judge_window(draft: Draft, fix: str) -> Iterator[Finding]:
    """Windows that are wider than the context, and those that llama.cpp cannot count."""
    window = draft.sliding_window or 0
    if window <= draft.context_length:
        return
    room = f"{window * POSITION_BYTES / 1e6:,.1f} MB"
    if window + BEYOND + draft.context_length >= POSITIONS:
        message = (
            f"llama.cpp cannot run with a sliding window of {window:,} tokens: it makes room for them ({room}) at every"
            f" batch and counts to {POSITIONS - 1:,} only."
        )
        yield error("window-beyond-context", "attention.sliding_window", message, fix)
    else:
        message = (
            f"the sliding window of {window:,} tokens is wider than the context of {draft.context_length:,}: it hides"
            f" nothing, and llama.cpp makes room for it ({room}) at every batch."
        )
        yield warning("window-beyond-context", "attention.sliding_window", message, fix)


def _causal(draft: Draft) -> Iterator[Finding]:
    if not draft.causal_pattern:
        return
    sides = "one side" if draft.causal else "both sides"
    message = (
        f"{sum(draft.causal_pattern)} of {draft.n_layer} layers let a slot see only the slots before it, the "
        f"others all of them; llama.cpp runs all layers alike: the file says that they see {sides}."
    )
    yield warning("causal-mixed", "attention.causal", message, "expect lower acceptance than in training")


def _mask(draft: Draft, config: Mapping[str, Any]) -> Iterator[Finding]:
    for key in ("pad_token_id", "eos_token_id", "bos_token_id"):
        ids = config.get(key)
        if draft.mask_token_id in (ids if isinstance(ids, list) else [ids]):
            message = f"mask_token_id {draft.mask_token_id} is also the {key}."
            yield warning("mask-is-special", "mask_token_id", message, FIX)


def unapplied(draft: Draft) -> Iterator[tuple[str, float, bool]]:
    """Key and value of a scale and a cap of the logits, and whether a Markov head's bias is added behind them.

    llama.cpp has them for DFlash2 alone (src/models/dflash.cpp); without a bias they leave the tokens' order.
    """
    if draft.kind == "dflash2":
        return
    biased = draft.kind == "dspark" and draft.markov_head_type != "zero"
    if draft.logit_scale is not None and draft.logit_scale != 1.0:
        yield "logit_scale", draft.logit_scale, biased
    if draft.logit_softcap is not None:
        yield "final_logit_softcapping", draft.logit_softcap, biased


def _logits(draft: Draft) -> Iterator[Finding]:
    for key, value, biased in unapplied(draft):
        what = "multiplied by" if key == "logit_scale" else "capped at"
        said = f"the draft's logits are {what} {value:g}, which llama.cpp leaves out"
        if biased:
            message = f"{said}: the Markov head's bias is added to other logits than in training."
            yield warning("logits-unscaled", key, message, "validate the draft: it tells what that costs")
        else:
            yield info("logits-unscaled", key, f"{said}; the same tokens are drafted without it.")


def _zero_head(draft: Draft) -> Iterator[Finding]:
    if draft.markov_head_type != "zero":
        return
    why = (
        *(["read the block from slot 0"] if draft.sample_from_anchor else []),
        *(["load the confidence head"] if draft.has_confidence_head else []),
    )
    message = (
        f"the draft has no Markov head; one of zeros (rank {draft.markov_rank}) is added, which leaves the logits as "
        f"they are and makes llama.cpp {' and '.join(why)}."
    )
    yield info("zero-markov-head", "markov_w1.weight", message)
