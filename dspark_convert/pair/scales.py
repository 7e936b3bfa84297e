"""What a target does to its embeddings and logits, of which a draft that borrows its tables sees nothing.

llama.cpp's draft reads rows of the target's table and multiplies with its head; scales and caps are those of
the draft's own keys, and of logits only where there is a selector (src/models/dflash.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose

from dspark_convert.draft import Draft
from dspark_convert.findings import Finding, warning
from dspark_convert.target import Target

VALIDATE = "run dspark-validate with the checkpoint as reference"


def judge_scales(draft: Draft, target: Target) -> Iterator[Finding]:
    own, theirs = draft.embedding_scale or 1.0, target.embedding_scale or 1.0
    if not draft.has_token_embd and not isclose(own, theirs, rel_tol=1e-5):
        message = (
            f"{target.called} multiplies its embeddings by {theirs:.6g}, and the draft, which borrows them, by"
            f" {own:.6g}: right only if it was trained so."
        )
        yield warning("target-embedding-scale", "embedding_scale", message, VALIDATE)
    done, stated = logits_of(target), logits_of(draft)
    # Without a head that adds to the logits their order is all that counts.
    if done and not stated and draft.kind != "dflash":
        message = (
            f"{target.called} changes its logits ({done}) and the draft says nothing of it: what its"
            f" {'selector' if draft.kind == 'dflash2' else 'Markov head'} adds has another weight than in training."
        )
        yield warning("target-logits", "final_logit_softcapping", message, VALIDATE)


def logits_of(model: Draft | Target) -> str:
    """What becomes of the head's product, in words; empty where it stays as it is."""
    scaled = model.logit_scale not in (None, 1.0)
    parts = [f"times {model.logit_scale:.6g}"] if scaled else []
    if model.logit_softcap:
        parts.append(f"capped at {model.logit_softcap:.6g}")
    return ", ".join(parts)
