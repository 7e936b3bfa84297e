"""Rules over DFlash2's convolutions and selector: what llama.cpp's loader and graph demand of their sizes."""

from __future__ import annotations

from collections.abc import Iterator

from dspark_convert.draft import DFlash2, Draft
from dspark_convert.findings import Finding, error
from dspark_convert.ggufio.reader import GGUFFile
from dspark_convert.lint.fixes import CORRECT


def check_dflash2(file: GGUFFile, draft: Draft) -> Iterator[Finding]:
    selector = file.tensor("selector_hidden.weight")
    top_k = file.metadata.get("dflash.selector_top_k")
    if selector is None and isinstance(top_k, int) and top_k > 0:
        message = (
            f"the best {top_k} tokens are to be scored, but there is no selector, and nothing computes the scores."
        )
        yield error("selector-missing", "selector_hidden.weight", message, CORRECT)
    if draft.dflash2 is not None:
        yield from _sizes(draft, draft.dflash2)


def _sizes(draft: Draft, parts: DFlash2) -> Iterator[Finding]:
    h = draft.hidden_size
    zero = [name for name, size in parts.to_json().items() if size < 1]
    if zero:
        yield error("selector-sizes", zero[0], "the size is 0, and llama.cpp refuses the draft.", CORRECT)
        return
    if h % parts.conv_group_size:
        message = f"{h} channels cannot be parted into groups of {parts.conv_group_size}; llama.cpp refuses the draft."
        yield error("selector-sizes", "conv_group_size", message, CORRECT)
    needed = parts.selector_top_k * (parts.selector_top_k + 1)
    if needed > h:
        message = (
            f"the scores of {parts.selector_top_k} tokens take {needed} values of a row of {h}; llama.cpp refuses it."
        )
        yield error("selector-sizes", "selector_top_k", message, CORRECT)
    elif parts.selector_top_k > draft.draft_vocab_size:
        message = f"the best {parts.selector_top_k} of {draft.draft_vocab_size} tokens are wanted; llama.cpp aborts."
        yield error("selector-sizes", "selector_top_k", message, CORRECT)
