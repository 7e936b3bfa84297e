"""What is wrong with a draft GGUF: small rules with stable ids, each over one aspect of the file."""

from __future__ import annotations

from collections.abc import Callable

from dspark_convert.findings import Finding
from dspark_convert.ggufio.dialects import Reading
from dspark_convert.ggufio.reader import GGUFFile


def lint(
    file: GGUFFile, reading: Reading, *, deep: bool = False, advance: Callable[[int], None] = lambda _bytes: None
) -> tuple[Finding, ...]:
    """All findings on an open draft file: the reader's, the dialect's and the rules'.

    ``deep`` also reads every tensor for NaN and zeros; ``advance`` is then told the bytes done.
    Where the meaning could not be read (``reading.draft`` is None) no rule can judge it.
    """
    from dspark_convert.lint.container import check_byte_order, check_container
    from dspark_convert.lint.meaning import check_meaning
    from dspark_convert.lint.tensors import check_tensors
    from dspark_convert.lint.values import check_values
    from dspark_convert.lint.vocabulary import check_vocabulary

    found = [*file.findings, *check_byte_order(file), *reading.findings]
    draft = reading.draft
    if draft is None:
        return tuple(found)
    judged = reading.view.judged  # in mainline's words
    told = [*check_container(judged, draft), *check_meaning(judged, draft)]
    told += check_tensors(judged, draft)
    told += check_vocabulary(judged, draft)
    if deep:
        told += check_values(judged, draft, advance)
    return (*found, *reading.view.told(told))
