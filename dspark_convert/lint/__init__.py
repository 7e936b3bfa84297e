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
    from dspark_convert.lint.container import check_container
    from dspark_convert.lint.meaning import check_meaning
    from dspark_convert.lint.tensors import check_tensors
    from dspark_convert.lint.values import check_values
    from dspark_convert.lint.vocabulary import check_vocabulary

    found = [*file.findings, *reading.findings]
    draft = reading.draft
    if draft is None:
        return tuple(found)
    found += check_container(file, draft)
    found += check_meaning(file, draft)
    found += check_tensors(file, draft)
    found += check_vocabulary(file, draft)
    if deep:
        found += check_values(file, draft, advance)
    return tuple(found)
