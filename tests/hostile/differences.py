"""Where our reader and the others judge a file differently on purpose, and why.

A file that ggml and gguf-py both take and we refuse, or that we find no fault with and ggml refuses, has to
fall under one of these; else the fuzz run fails.
"""

from __future__ import annotations

import re

#: what the finding or the error says -> why we refuse what the others take
WE_REFUSE: dict[str, str] = {
    r"\[zero-dimension\]": "ggml takes empty tensors; no draft has one, and llama.cpp's loader refuses the shape",
    r"\[truncated\]": "ggml reads the header alone here; llama.cpp's loader then looks whether the data are there",
    r"\[tensor-name\].* has 0 bytes": "ggml takes a tensor without a name; llama.cpp's loader counts one too many",
    r"\[bad-utf8\]": "ggml does not look at the encoding; programs that decode it stop or guess",
    r"\[embedded-nul\]": "ggml takes names with a NUL, and reads them up to there: not as other programs do",
    r"general\.alignment is \d+; it has to be": "ggml takes alignments of gigabytes",
    r"has \d[\d,]* bytes; more than 65,535": "the specification's limit on keys, which ggml does not keep",
    r"announced; more than|are not read": "a limit of ours, far above any published file",
    r"parts of a split file, but not the first": "true of a part by itself, for which ggml does not look",
    r"\[split-file\]": "ggml looks at one file only",
}

#: what is true of the file -> why we take what ggml refuses
WE_ACCEPT: dict[str, str] = {
    r"\[big-endian\]": "we read both byte orders; that the machine cannot run the file is a finding",
}


def explain(text: str, reasons: dict[str, str]) -> str | None:
    """The first of ``reasons`` that applies to what was told."""
    return next((reason for pattern, reason in reasons.items() if re.search(pattern, text)), None)
