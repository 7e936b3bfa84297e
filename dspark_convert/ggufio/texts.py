"""Are the names and texts in a GGUF what llama.cpp reads there?"""

from __future__ import annotations

from collections.abc import Iterator

from dspark_convert.findings import Finding, error, warning


def check_text(data: bytes, where: str, what: str, at: int, *, name: bool) -> Iterator[Finding]:
    """Findings on ``what`` (the key, the tensor name, the text) at byte ``at``.

    llama.cpp handles all as C strings: with a NUL in a ``name`` it finds another key or tensor than other programs.
    """
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        yield error("bad-utf8", where, f"{what} at byte {at} is not UTF-8.")
    place = data.find(b"\0")
    if place >= 0:
        message = f"{what} at byte {at} holds a NUL; llama.cpp reads the {place:,} bytes before it only."
        yield error("embedded-nul", where, message) if name else warning("embedded-nul", where, message)
