"""A diff in one sentence, so that a person sees at once what the two files are to each other."""

from __future__ import annotations

from collections.abc import Iterator

from dspark_convert.diff.compare import Diff
from dspark_convert.words import listed

#: names that are told
TOLD = 4
#: keys of the list of tokens and what belongs to it
VOCABULARY = {f"tokenizer.ggml.{name}" for name in ("model", "pre", "tokens", "token_type", "scores", "merges")}


def verdict(diff: Diff) -> str:
    """One sentence without a full stop, safe to print once escaped."""
    reasons = list(_reasons(diff))
    if diff.meaning is None and not diff.is_same:
        reasons.insert(0, "the meaning of one of them cannot be read")
    elif diff.meaning:
        titles = listed([field.title for field in diff.meaning], TOLD)
        reasons.insert(0, f"{titles} {'differs' if len(diff.meaning) == 1 else 'differ'}")
    else:
        return _same_meaning(diff, reasons)
    return f"{'Another draft' if diff.meaning else 'Not compared in full'}: {'; '.join(reasons)}"


def _same_meaning(diff: Diff, reasons: list[str]) -> str:
    if reasons:
        return f"The same kind of draft, but {'; '.join(reasons)}"
    if diff.retyped:
        text = f"The same draft, other quantisation: {_count(len(diff.retyped), diff.common)} of another type"
        return f"{text}, {_rounded(diff)}"
    alike = "no difference in meaning or tensors"
    if diff.values is not None:
        rounded = sum(value.judgement == "rounding" for value in diff.values)
        alike = "no difference in meaning, tensors or values"
        if rounded:
            alike = f"values of {_count(rounded, diff.common)} apart within rounding"
    elif diff.common:
        alike += " (values: --deep)"
    return f"The same draft{', other labels' if diff.metadata else ''}: {alike}"


def _rounded(diff: Diff) -> str:
    return "all values within rounding" if diff.values is not None else "values not compared (--deep)"


def _reasons(diff: Diff) -> Iterator[str]:
    """What makes it more than another quantisation, beside the meaning."""
    keys = [key.key for key in diff.metadata if key.counts]
    if VOCABULARY & set(keys):
        yield "another vocabulary"
    others = [key for key in keys if key not in VOCABULARY]
    if others and not diff.meaning:
        yield f"other metadata ({listed(others, TOLD)})"
    alone = sum(tensor.change in ("only-a", "only-b") for tensor in diff.tensors)
    shapes = sum(tensor.change == "shape" for tensor in diff.tensors)
    if alone:
        yield f"{'1 tensor is' if alone == 1 else f'{alone} tensors are'} in one of them only"
    if shapes:
        yield f"{_count(shapes, diff.common)} of another shape"
    wrong = sum(value.judgement == "different" for value in diff.values or ())
    unread = sum(value.judgement == "unread" for value in diff.values or ())
    if wrong:
        yield f"other weights in {_count(wrong, diff.common)}"
    if unread:
        yield f"{_count(unread, diff.common)} not comparable"


def _count(number: int, of: int) -> str:
    return f"{number} of {of} tensors"
